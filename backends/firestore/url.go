package firestore

import (
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// config is a backend URL as understood.
type config struct {
	names       names
	root        string // "projects/P/databases/D/documents"
	project     string
	databaseID  string
	endpoint    url.URL // scheme and host
	emulator    bool    // no credentials
	credentials string  // path of a file; "" for the application default credentials
	quota       string  // who pays, where it is not the project of the credentials
	name        string
	timeout     time.Duration
}

const (
	defaultDatabase = "(default)"
	defaultEndpoint = "firestore.googleapis.com"

	emulatorVariable = "FIRESTORE_EMULATOR_HOST"
	example          = "write firestore://project/collection"
)

func wrongURL(why, remedy string) error {
	return &backends.UsageError{What: "firestore URL", Why: why, Remedy: remedy}
}

// configure reads firestore://project/collection?...
func configure(u *backends.URL, o backends.Options) (*config, error) {
	known := []string{"database", "credentials", "quota_project", "endpoint", "emulator"}
	if err := u.Only(known...); err != nil {
		return nil, err
	}
	for _, name := range known {
		if u.Query[name] != nil && u.Param(name) == "" { // an unset variable, most likely
			return nil, wrongURL("the parameter "+name+" is empty", "give it a value, or leave it out")
		}
	}
	c := &config{timeout: o.Timeout, databaseID: defaultDatabase, credentials: u.Param("credentials"), quota: u.Param("quota_project")}
	if d := u.Param("database"); d != "" {
		c.databaseID = d
	}
	for _, step := range []func(*backends.URL) error{c.setProject, c.setCollection, c.setServer, c.setCredentials} {
		if err := step(u); err != nil {
			return nil, err
		}
	}
	c.name = "firestore://" + c.project + u.Path
	if c.databaseID != defaultDatabase {
		c.name += "?database=" + c.databaseID
	}
	return c, nil
}

func (c *config) setProject(u *backends.URL) error {
	switch {
	case u.User != "" || u.HasPassword:
		return wrongURL("it names a user", "leave user and password out: Firestore takes Google's credentials, by ?credentials=FILE or as the application default")
	case len(u.Hosts) != 1:
		return wrongURL("it does not name one project", example)
	case !isProject(u.Hosts[0]):
		return wrongURL("the project is not an id of lower-case letters, digits and '-'", example+" with the project's id, not its name")
	case strings.Trim(c.databaseID, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" && c.databaseID != defaultDatabase:
		return wrongURL("database is not an id of lower-case letters, digits and '-'", "leave it out for the default database")
	}
	c.project = u.Hosts[0]
	c.root = "projects/" + c.project + "/databases/" + c.databaseID + "/documents"
	return nil
}

// isProject takes a project's id, which old ones of an organisation have a domain in front of: example.com:project.
func isProject(id string) bool {
	const plain = "abcdefghijklmnopqrstuvwxyz0123456789-"
	domain, name, scoped := strings.Cut(id, ":")
	if !scoped {
		return strings.Trim(id, plain) == ""
	}
	return strings.Contains(domain, ".") && strings.Trim(domain, plain+".") == "" && strings.Trim(name, plain) == "" && strings.Trim(name, "0123456789") != ""
}

// setCollection takes a collection, or one below a document: a/b/c is collection c of document b.
func (c *config) setCollection(u *backends.URL) error {
	parts := strings.Split(strings.TrimPrefix(u.Path, "/"), "/")
	if u.Path == "" || u.Path == "/" {
		return wrongURL("it names no collection", example)
	}
	if len(parts)%2 == 0 {
		return wrongURL("what follows the project is a document, not a collection", example+", or firestore://project/collection/document/collection")
	}
	for _, p := range parts {
		if p == "" || p == "." || p == ".." || len(p) > 200 || strings.HasPrefix(p, "__") {
			return wrongURL("the collection has a name that Firestore does not take", "use letters, digits, '-' and '_'")
		}
	}
	last := len(parts) - 1
	c.names = names{root: strings.Join(append([]string{c.root}, parts[:last]...), "/"), collection: parts[last]}
	return nil
}

// setServer settles who is asked: Google, a private way to it, or an emulator.
func (c *config) setServer(u *backends.URL) error {
	emulator := u.Param("emulator")
	raw := u.Param("endpoint")
	if emulator != "" && raw != "" {
		return wrongURL("both emulator and endpoint are there", "leave one of them out: an emulator is asked without credentials, an endpoint with them")
	}
	from, remedy := "emulator", "write it like emulator=127.0.0.1:8080"
	if emulator == "" && raw == "" {
		emulator, from = os.Getenv(emulatorVariable), "the variable "+emulatorVariable
		remedy = "write " + emulatorVariable + "=127.0.0.1:8080, or unset it for Google's own service"
	}
	if emulator != "" {
		host := strings.TrimSuffix(strings.TrimPrefix(emulator, "http://"), "/")
		if !hasPort(host) {
			return wrongURL(from+" is not host:port", remedy)
		}
		c.endpoint, c.emulator = url.URL{Scheme: "http", Host: host}, true
		return nil
	}
	c.endpoint = url.URL{Scheme: "https", Host: defaultEndpoint}
	if raw == "" {
		return nil
	}
	if !strings.Contains(raw, "://") {
		raw = "https://" + raw
	}
	e, err := url.Parse(raw)
	if err != nil || !isHost(e.Host) || e.User != nil || strings.Trim(e.Path, "/") != "" || e.RawQuery != "" {
		return wrongURL("endpoint is not https://host", "write it like https://firestore.me-central2.rep.googleapis.com")
	}
	if e.Scheme != "https" && !(e.Scheme == "http" && loopback(e.Hostname())) {
		return wrongURL("endpoint is not https", "a token must not travel unencrypted; an emulator is named by emulator=HOST:PORT")
	}
	c.endpoint = url.URL{Scheme: e.Scheme, Host: e.Host}
	return nil
}

func isHost(h string) bool {
	u, err := url.Parse("http://" + h)
	return err == nil && h != "" && u.Host == h && u.Hostname() != ""
}

// hasPort wants a port: an emulator has no usual one, and 80 would be taken without a word.
func hasPort(h string) bool {
	u, err := url.Parse("http://" + h)
	if err != nil || !isHost(h) {
		return false
	}
	n, err := strconv.ParseUint(u.Port(), 10, 16)
	return err == nil && n > 0
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// setCredentials wants a path that means the same wherever lockrun is started.
func (c *config) setCredentials(*backends.URL) error {
	if c.credentials != "" && !strings.HasPrefix(c.credentials, "/") {
		return wrongURL("credentials is not an absolute path", "write it like credentials=/etc/lockrun/key.json")
	}
	if strings.Trim(c.quota, "abcdefghijklmnopqrstuvwxyz0123456789-.:") != "" {
		return wrongURL("quota_project is not a project's id", "write its id, not its name")
	}
	return nil
}
