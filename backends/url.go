package backends

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// URL is a backend URL taken apart. net/url cannot read the lists of hosts that several backends need, and quietly
// accepts passwords that only look as if they had been understood; see ParseURL.
type URL struct {
	Scheme      string              // lower case: "redis+sentinel"
	User        string              // decoded
	Password    string              // decoded; never printed
	HasPassword bool                // an empty password was given, as against none
	Hosts       []string            // as written: "h1:6379", "[::1]:6379"; nil where there is none
	Path        string              // decoded, with its leading slash; "" where there is none
	Query       map[string][]string // decoded
}

// ParseURL takes scheme://[user[:password]@]host[,host...][/path][?name=value&...] apart. It returns a *UsageError that
// never echoes what might be a secret.
//
// A raw '@', '/', '?', '#', '%', space or non-ASCII character in a password makes the URL ambiguous: it can be read in
// more than one way, and the wrong one sends half a password to a name server as a host name. All of them are refused
// with the hint to encode.
func ParseURL(raw string) (*URL, error) {
	scheme, rest, found := strings.Cut(raw, "://")
	if !found || !validScheme(scheme) {
		return nil, &UsageError{What: "backend URL", Why: "it does not begin with a scheme like sqlite:// or redis://",
			Remedy: "write scheme://host/path, or the name of a [backends.NAME] of the configuration file"}
	}
	u := &URL{Scheme: strings.ToLower(scheme)}
	if err := checkCharacters(u.Scheme, rest); err != nil {
		return nil, err
	}
	authority, path, query := cutURL(rest)
	if authority != "" && strings.Contains(path+query, "@") {
		return nil, ambiguous(u.Scheme, "there is an '@' after the host")
	}
	if err := u.setAuthority(authority); err != nil {
		return nil, err
	}
	var err error
	if u.Path, err = url.PathUnescape(path); err != nil {
		return nil, ambiguous(u.Scheme, "the path has a '%' that encodes nothing")
	}
	if u.Query, err = url.ParseQuery(query); err != nil {
		return nil, ambiguous(u.Scheme, "the parameters after '?' cannot be decoded")
	}
	return u, u.checkDecoded()
}

func validScheme(s string) bool {
	return s != "" && strings.Trim(strings.ToLower(s), "abcdefghijklmnopqrstuvwxyz0123456789+-.") == ""
}

// checkCharacters refuses what no part of a URL may hold unencoded.
func checkCharacters(scheme, rest string) error {
	for _, r := range rest {
		switch {
		case r == '#':
			return ambiguous(scheme, "it contains a '#'")
		case r == ' ':
			return ambiguous(scheme, "it contains a space")
		case isControl(r):
			return ambiguous(scheme, "it contains a control character")
		case r == utf8.RuneError:
			return ambiguous(scheme, "it is not UTF-8")
		}
	}
	return nil
}

// cutURL splits what follows "://".
func cutURL(rest string) (authority, path, query string) {
	rest, query, _ = strings.Cut(rest, "?")
	if i := strings.IndexByte(rest, '/'); i >= 0 {
		return rest[:i], rest[i:], query
	}
	return rest, "", query
}

// setAuthority reads user, password and hosts.
func (u *URL) setAuthority(s string) error {
	if strings.Count(s, "@") > 1 {
		return ambiguous(u.Scheme, "there is more than one '@'")
	}
	if info, hosts, found := strings.Cut(s, "@"); found {
		if err := u.setUser(info); err != nil {
			return err
		}
		s = hosts
		if s == "" {
			return &UsageError{What: u.Scheme + " URL", Why: "there is no host after the '@'", Remedy: "name one"}
		}
	}
	if s == "" {
		return nil
	}
	u.Hosts = strings.Split(s, ",")
	for _, h := range u.Hosts {
		if err := u.checkHost(h); err != nil {
			return err
		}
	}
	return nil
}

func (u *URL) setUser(info string) error {
	if strings.ContainsFunc(info, func(r rune) bool { return r >= utf8.RuneSelf || strings.ContainsRune(`"<>[]\^{|}`+"`", r) }) {
		return ambiguous(u.Scheme, "user or password hold a character that has to be encoded")
	}
	name, password, found := strings.Cut(info, ":")
	var err, err2 error
	u.User, err = url.PathUnescape(name)
	u.Password, err2 = url.PathUnescape(password)
	u.HasPassword = found
	if err != nil || err2 != nil {
		return ambiguous(u.Scheme, "user or password hold a '%' that encodes nothing")
	}
	return nil
}

// domainScoped tells whether h is the id of a project of an organisation's domain, like example.com:project, which stands
// where other backends have a host.
func domainScoped(h string) bool {
	domain, project, _ := strings.Cut(h, ":")
	const plain = "abcdefghijklmnopqrstuvwxyz0123456789-"
	return strings.Contains(domain, ".") && strings.Trim(domain, plain+".") == "" &&
		strings.Trim(project, plain) == "" && strings.Trim(project, "0123456789") != ""
}

// checkHost takes name, name:port, [address] and [address]:port. It does not echo the host: in a URL whose password was
// not encoded, what stands in its place may be the password.
func (u *URL) checkHost(h string) error {
	if u.Scheme == "firestore" && domainScoped(h) {
		return nil
	}
	name, port := h, ""
	if strings.HasPrefix(h, "[") {
		i := strings.IndexByte(h, ']')
		if i < 0 || i+1 < len(h) && h[i+1] != ':' {
			return u.badHost(hostShape, hostRemedy)
		}
		name, port = h[1:i], strings.TrimPrefix(h[i+1:], ":")
	} else if i := strings.IndexByte(h, ':'); i >= 0 {
		name, port = h[:i], h[i+1:]
	}
	switch {
	case h == "":
		return u.badHost("the list of hosts has an empty part", "leave the extra comma out")
	case name == "":
		return u.badHost("a port has no host in front of it", "name the host")
	case strings.Trim(port, "0123456789") != "" && !strings.Contains(port, ":"):
		return u.badHost("the port of a host is not a number", "correct it, or leave it out for the usual one")
	case strings.Trim(port, "0123456789") != "" || len(port) > 5 || strings.ContainsAny(name, "[]%\\\"<>^`{|}"):
		return u.badHost(hostShape, hostRemedy)
	}
	if n, err := strconv.Atoi(port); port != "" && (err != nil || n < 1 || n > 65535) {
		return &UsageError{What: u.Scheme + " URL", Why: "the port of a host is not between 1 and 65535", Remedy: "correct it, or leave it out for the usual one"}
	}
	return nil
}

const (
	hostShape  = "a host is neither name, name:port nor [address]:port"
	hostRemedy = "check the hosts, and put an IPv6 address into brackets"
)

// badHost is about the hosts, and about a password only where there is a login: then what stands in a host's place may be
// the rest of a password that was not encoded.
func (u *URL) badHost(why, remedy string) error {
	if u.User != "" || u.HasPassword {
		remedy += "; if that is part of the password, encode its special characters (%40 for '@', %2F for '/', %3A for ':')"
	}
	return &UsageError{What: u.Scheme + " URL", Why: why, Remedy: remedy}
}

// checkDecoded refuses NUL bytes that came in by %00: below every store there is C.
func (u *URL) checkDecoded() error {
	all := []string{u.User, u.Password, u.Path}
	for name, values := range u.Query {
		all = append(append(all, name), values...)
	}
	if slices.ContainsFunc(all, func(s string) bool { return strings.IndexByte(s, 0) >= 0 || !utf8.ValidString(s) }) {
		return &UsageError{What: u.Scheme + " URL", Why: "it encodes a NUL byte or something that is not UTF-8", Remedy: "leave it out"}
	}
	return nil
}

func ambiguous(scheme, why string) error {
	return &UsageError{What: scheme + " URL", Why: why,
		Remedy: "encode special characters of user, password and path, like %40 for '@', %23 for '#', %2F for '/', %25 for '%', or keep the password in a password_file"}
}

// Only returns a *UsageError that names the first query parameter which is not among known, or is given twice.
func (u *URL) Only(known ...string) error {
	names := make([]string, 0, len(u.Query))
	for name := range u.Query {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if !slices.Contains(known, name) {
			remedy := "it takes none"
			if len(known) > 0 {
				remedy = "it takes " + strings.Join(known, ", ")
			}
			return &UsageError{What: u.Scheme + " URL", Why: "unknown parameter " + shorten(name), Remedy: remedy}
		}
		if len(u.Query[name]) > 1 {
			return &UsageError{What: u.Scheme + " URL", Why: "parameter " + name + " is given more than once", Remedy: "give it once"}
		}
	}
	return nil
}

// shorten keeps a long or odd name from filling the line.
func shorten(name string) string {
	if len(name) > 40 {
		name = strings.ToValidUTF8(name[:40], "") + "..."
	}
	return "\"" + strings.Map(func(r rune) rune {
		if isControl(r) {
			return '?'
		}
		return r
	}, name) + "\""
}

// Param returns the value of a query parameter, "" where it is not given.
func (u *URL) Param(name string) string {
	if v := u.Query[name]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// String is the URL without password and without the values of its parameters, for messages.
func (u *URL) String() string {
	s := u.Scheme + "://"
	if u.User != "" {
		s += url.PathEscape(u.User) + "@"
	}
	return s + strings.Join(u.Hosts, ",") + (&url.URL{Path: u.Path}).EscapedPath()
}

// Redact returns raw fit for a message: without user, password and the values of parameters, also where raw is no URL
// that ParseURL would accept. Of one that is ambiguous only the scheme is left.
func Redact(raw string) string {
	u, err := ParseURL(raw)
	if err == nil {
		return u.String()
	}
	if scheme, _, found := strings.Cut(raw, "://"); found && validScheme(scheme) {
		return strings.ToLower(scheme) + "://..."
	}
	return "..."
}
