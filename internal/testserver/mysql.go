package testserver

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Versions of MySQL that are tested with.
const (
	MySQL80 = "8.0.31"
	MySQL57 = "5.7.22"
)

// StartMySQL starts one server of MySQL instead of MariaDB: MySQL80 or MySQL57. The first call on a machine fetches the
// version and makes its data, later ones copy them. It skips the test, visibly, where that version cannot be had.
func StartMySQL(t TB, version string, config MariaDBConfig) *MariaDB {
	t.Helper()
	b := fetchedMySQL(t, version)
	return startDatabase(t, &MariaDB{config: config, mysql: b}, b.template)
}

// mysqlFiles make the data of an empty server small; see innodbOptions.
var mysqlFiles = []string{"--innodb-log-file-size=8M", "--innodb-data-file-path=ibdata1:5M:autoextend",
	"--innodb-autoextend-increment=1", "--innodb-buffer-pool-size=64M"}

// args begins the command line of a server with this data folder. Its other protocol would want a port, and what it measures
// of itself more memory than all the rest.
//
// A server refuses to be root unless it is told to; a user of its own could not enter root's cache, where the server is.
// That option changes no user, so the server goes on to die with this process.
func (b *mysqlBuild) args(data string) []string {
	a := append([]string{"--no-defaults", "--basedir=" + b.dir, "--lc-messages-dir=" + filepath.Join(b.dir, "share"), "--datadir=" + data,
		"--sync-binlog=0", "--performance-schema=OFF"}, mysqlFiles...)
	if os.Getuid() == 0 {
		a = append(a, "--user=root")
	}
	if b.version == MySQL80 {
		a = append(a, "--mysqlx=OFF")
	}
	return a
}

// template gives the folder with the data of an empty server.
func (b *mysqlBuild) template() (string, error) {
	dir := filepath.Join(b.dir, "template")
	return filepath.Join(dir, "data"), once(dir, b.initialize)
}

// mysqlRoot lets root in by TCP as well, from whose address the server makes no name.
const mysqlRoot = `CREATE DATABASE ` + Database + `;
CREATE USER 'root'@'127.0.0.1', 'root'@'::1';
GRANT ALL ON *.* TO 'root'@'127.0.0.1' WITH GRANT OPTION;
GRANT ALL ON *.* TO 'root'@'::1' WITH GRANT OPTION;
`

// initialize makes the data of an empty server in dir/data.
func (b *mysqlBuild) initialize(dir string) error {
	script := filepath.Join(dir, "init.sql")
	if err := os.WriteFile(script, []byte(mysqlRoot), 0o644); err != nil {
		return err
	}
	args := append(b.args(filepath.Join(dir, "data")), "--initialize-insecure", "--init-file="+script, "--innodb-flush-log-at-trx-commit=0")
	if out, err := output(exec.Command(b.program(), args...)); err != nil {
		return fmt.Errorf("initializing MySQL %s: %w: %s", b.version, err, tail(out, 20))
	}
	return nil
}
