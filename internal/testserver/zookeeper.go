package testserver

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// ZooKeeperConfig is how a ZooKeeper server is started. Its zero value ticks five times a second and grants sessions from
// 0.4 s to ten minutes.
type ZooKeeperConfig struct {
	TLS    *Certs   // speak TLS on the address that clients are told
	Mutual bool     // with TLS: ask clients for a certificate of the same authority
	Lines  []string // more of zoo.cfg; a later line replaces an earlier one of the same name
	Env    []string // beside this process's own, like that of libfaketime
}

// ZooKeeper is one ZooKeeper server, alone or in an ensemble.
type ZooKeeper struct {
	*Process
	config ZooKeeperConfig
	dir    string
	plain  int // the port without TLS, on which the four-letter words are answered
	secure int // 0 without TLS
	member int // 1 to n in an ensemble; 0 alone
	peers  []string
}

// StartZooKeeper starts one server, which answers after some two seconds.
func StartZooKeeper(t TB, config ZooKeeperConfig) *ZooKeeper {
	t.Helper()
	Need(t, "java", zookeeperJar)
	z := &ZooKeeper{config: config, dir: newFolder(t, "zookeeper")}
	z.Process = launch(t, z.choose)
	return z
}

const zookeeperJar = "zookeeper.jar"

// choose gives the server an address and writes its configuration.
func (z *ZooKeeper) choose() (spec, error) {
	var err error
	if z.plain, err = freePort(); err != nil {
		return spec{}, err
	}
	if z.config.TLS != nil {
		if z.secure, err = freePort(); err != nil {
			return spec{}, err
		}
	}
	if err := z.configure(); err != nil {
		return spec{}, err
	}
	return spec{
		name:  fmt.Sprintf("zookeeper on port %d", z.plain),
		argv:  z.argv(),
		env:   z.config.Env,
		log:   filepath.Join(z.dir, "log"),
		data:  z.data(),
		fill:  z.fill,
		ready: z.answers,
		quit:  10 * time.Second,
	}, z.fill()
}

func (z *ZooKeeper) data() string { return filepath.Join(z.dir, "data") }

// fill is what a data folder has to hold: of an ensemble's member its number.
func (z *ZooKeeper) fill() error {
	err := makeFolder(z.data())
	if err != nil || z.member == 0 {
		return err
	}
	return os.WriteFile(filepath.Join(z.data(), "myid"), fmt.Appendln(nil, z.member), 0o644)
}

// argv keeps the virtual machine small: tests start several on machines with little memory. The folder is named twice, so
// that a server's answer tells which one it is.
func (z *ZooKeeper) argv() []string {
	jars := []string{find(zookeeperJar), find("slf4j-simple.jar")}
	if z.config.TLS != nil {
		netty, _ := filepath.Glob(filepath.Join(filepath.Dir(jars[0]), "netty-*.jar"))
		jars = append(jars, netty...)
	}
	return []string{find("java"), "-Xmx160m", "-Xms32m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-XX:-UsePerfData",
		"-Dlockrun.folder=" + z.dir, "-Duser.home=" + z.dir,
		"-Dzookeeper.4lw.commands.whitelist=*", "-Dzookeeper.admin.enableServer=false", "-Dzookeeper.jmx.log4j.disable=true",
		"-Dzookeeper.cnxTimeout=500", "-Dorg.slf4j.simpleLogger.defaultLogLevel=info", "-Dorg.slf4j.simpleLogger.showDateTime=true",
		"-cp", strings.Join(jars, ":"), "org.apache.zookeeper.server.quorum.QuorumPeerMain", filepath.Join(z.dir, "zoo.cfg")}
}

// configure writes zoo.cfg. forceSync is off because nothing here has to survive the machine; syncLimit is four seconds, for
// which a busy machine may forget a server without the others electing anew.
func (z *ZooKeeper) configure() error {
	lines := []string{"tickTime=200", "dataDir=" + z.data(), fmt.Sprintf("clientPort=%d", z.plain), "clientPortAddress=127.0.0.1",
		"maxClientCnxns=0", "minSessionTimeout=400", "maxSessionTimeout=600000", "forceSync=no", "syncLimit=20", "initLimit=100"}
	if c := z.config.TLS; c != nil {
		pair, err := z.pem(c)
		if err != nil {
			return err
		}
		auth := "none"
		if z.config.Mutual {
			auth = "need"
		}
		lines = append(lines, fmt.Sprintf("secureClientPort=%d", z.secure), "secureClientPortAddress=127.0.0.1",
			"serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory", "ssl.clientAuth="+auth,
			"ssl.keyStore.location="+pair, "ssl.keyStore.type=PEM", "ssl.trustStore.location="+c.CAFile, "ssl.trustStore.type=PEM")
	}
	lines = append(append(lines, z.peers...), z.config.Lines...)
	return os.WriteFile(filepath.Join(z.dir, "zoo.cfg"), []byte(strings.Join(lines, "\n")+"\n"), 0o644)
}

// pem is one file with key and certificate, which is how ZooKeeper wants them.
func (z *ZooKeeper) pem(c *Certs) (string, error) {
	key, err := os.ReadFile(c.Server.KeyFile)
	if err != nil {
		return "", err
	}
	cert, err := os.ReadFile(c.Server.CertFile)
	if err != nil {
		return "", err
	}
	file := filepath.Join(z.dir, "server.pem")
	return file, os.WriteFile(file, append(key, cert...), 0o644)
}

// Addr is the address that clients are told, "127.0.0.1:17042".
func (z *ZooKeeper) Addr() string {
	if z.secure != 0 {
		return addr(z.secure)
	}
	return addr(z.plain)
}

// URL is how lockrun is told of this server. Each test takes a chroot of its own, like "/test1".
func (z *ZooKeeper) URL(chroot string) string { return zookeeperURL(chroot, z) }

func zookeeperURL(chroot string, servers ...*ZooKeeper) string {
	var hosts []string
	for _, z := range servers {
		hosts = append(hosts, z.Addr())
	}
	u := &url.URL{Scheme: "zookeeper", Host: strings.Join(hosts, ","), Path: chroot}
	if c := servers[0].config.TLS; c != nil {
		q, _ := url.ParseQuery(c.query(servers[0].config.Mutual))
		q.Set("tls", "true")
		u.RawQuery = q.Encode()
	}
	return u.String()
}

// Word asks one of the four-letter words, like "srvr" or "mntr". A frozen server makes it return an error after 5 s.
func (z *ZooKeeper) Word(word string) (string, error) {
	c, err := net.DialTimeout("tcp", addr(z.plain), 5*time.Second)
	if err != nil {
		return "", err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := io.WriteString(c, word); err != nil {
		return "", err
	}
	text, err := io.ReadAll(c)
	return string(text), err
}

// Mode is "standalone", "leader", "follower" or, where the server is not serving, "".
func (z *ZooKeeper) Mode() string {
	text, _ := z.Word("srvr")
	_, mode, _ := strings.Cut(text, "Mode: ")
	mode, _, _ = strings.Cut(mode, "\n")
	return mode
}

// answers is the readiness check. A member of an ensemble serves only with others, so that it is enough for it to answer;
// that it is this server shows its folder.
func (z *ZooKeeper) answers(int) error {
	text, err := z.Word("envi")
	if err != nil {
		return err
	}
	if !strings.Contains(text, "user.home="+z.dir+"\n") {
		return errors.New("another server answers")
	}
	if z.member == 0 && z.Mode() == "" {
		return errors.New("it does not serve yet")
	}
	if z.secure == 0 {
		return nil
	}
	conn, err := net.DialTimeout("tcp", addr(z.secure), time.Second) // it listens there a moment later
	if err == nil {
		conn.Close()
	}
	return err
}

// Ensemble is a number of ZooKeeper servers that elect a leader.
type Ensemble struct {
	t       TB
	Servers []*ZooKeeper
}

// StartEnsemble starts n servers and returns when all of them serve, after some three seconds.
func StartEnsemble(t TB, n int, config ZooKeeperConfig) *Ensemble {
	t.Helper()
	Need(t, "java", zookeeperJar)
	var peers []string
	for i := range n {
		quorum, err := freePort()
		election, err2 := freePort()
		if err = errors.Join(err, err2); err != nil {
			t.Fatalf("%v", err)
		}
		peers = append(peers, fmt.Sprintf("server.%d=127.0.0.1:%d:%d", i+1, quorum, election))
	}
	e := &Ensemble{t: t}
	for i := range n {
		z := &ZooKeeper{config: config, dir: newFolder(t, "zookeeper"), member: i + 1, peers: peers}
		z.Process = launch(t, z.choose)
		e.Servers = append(e.Servers, z)
	}
	e.Await(n)
	return e
}

// Await waits until n servers serve, one of them as leader.
func (e *Ensemble) Await(n int) {
	e.t.Helper()
	await(e.t, fmt.Sprintf("an ensemble of %d", n), func() error {
		modes := map[string]int{}
		for _, z := range e.Servers {
			if z.Running() {
				modes[z.Mode()]++
			}
		}
		if modes["leader"] != 1 || modes["leader"]+modes["follower"] < n {
			return fmt.Errorf("modes %v", modes)
		}
		return nil
	})
}

// Leader is the server that leads now, and Followers are the others that serve. They look again while there is none.
func (e *Ensemble) Leader() (leader *ZooKeeper) {
	e.t.Helper()
	await(e.t, "a leader", func() error {
		for _, z := range e.Servers {
			if z.Running() && z.Mode() == "leader" {
				leader = z
				return nil
			}
		}
		return errors.New("nobody leads")
	})
	return leader
}

// Followers are the servers that follow the leader now.
func (e *Ensemble) Followers() []*ZooKeeper {
	var all []*ZooKeeper
	for _, z := range e.Servers {
		if z.Running() && z.Mode() == "follower" {
			all = append(all, z)
		}
	}
	return all
}

// URL is how lockrun is told of the ensemble.
func (e *Ensemble) URL(chroot string) string { return zookeeperURL(chroot, e.Servers...) }

// zookeeperSession matches the request by which a client asks for a session, for a Proxy: protocol version, and no
// earlier transaction seen.
var zookeeperSession = bytes.Repeat([]byte{0}, 12)

// SessionRequest is what a [Proxy] finds in a client's request for a new ZooKeeper session.
func SessionRequest() string { return string(zookeeperSession) }
