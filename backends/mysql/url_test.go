package mysql_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/backends/mysql"
)

func TestURLsThatAreRefused(t *testing.T) {
	for raw, word := range map[string]string{
		"mysql://h/db":                                    "user",
		"mysql://u@h":                                     "database",
		"mysql://u@h/":                                    "database",
		"mysql://u@h/a/b":                                 "more than a database",
		"mysql://u@h1,h2/db":                              "more than one host",
		"mysql:///db":                                     "user",
		"mysql://u@h/db?wat=sEcReT":                       `"wat"`,
		"mysql://u@h/db?tls=maybe":                        "tls",
		"mysql://u@h/db?tls=false&ca=/x":                  "ca",
		"mysql://u@h/db?tls=true&cert=/x":                 "cert and key",
		"mysql://u@h/db?socket=m.sock":                    "absolute",
		"mysql://u@h/db?socket=/m.sock&tls=true":          "server_name",
		"mysql://u@h/db?table=a.b":                        "table",
		"mysql://u@h/db?table=x%60%3Bdrop":                "table",
		"mysql://u@h/db?table=" + strings.Repeat("x", 41): "table",
	} {
		u, err := backends.ParseURL(raw)
		if err != nil {
			t.Fatal(err)
		}
		_, err = mysql.Open(context.Background(), u, backends.Options{})
		var usage *backends.UsageError
		if !errors.As(err, &usage) || !strings.Contains(err.Error(), word) || strings.Contains(err.Error(), "sEcReT") {
			t.Errorf("Open(%q) = %v; want a *UsageError about %s", raw, err, word)
		}
	}
}

func TestNamesTellServerDatabaseAndTable(t *testing.T) {
	for raw, want := range map[string]string{
		"mysql://u:sEcReT@db.example/jobs":                   "mysql:db.example:3306/jobs",
		"mysql://u@db.example:3307/jobs?table=locks":         "mysql:db.example:3307/jobs?table=locks",
		"mysql://u@[::1]/jobs":                               "mysql:[::1]:3306/jobs",
		"mysql://u@[::1]:3307/jobs":                          "mysql:[::1]:3307/jobs",
		"mysql://u@localhost/jobs?socket=/run/mysqld/m.sock": "mysql:/run/mysqld/m.sock/jobs",
	} {
		b := open(t, raw, backends.Options{Password: "sEcReT"})
		if b.Name() != want {
			t.Errorf("%q is called %q, want %q", raw, b.Name(), want)
		}
		b.Close()
	}
}

func TestCertificatesThatCannotBeReadAreNamed(t *testing.T) {
	for _, query := range []string{"ca=/none.pem", "ca=/dev/null", "cert=/none.pem&key=/none.key"} {
		u, _ := backends.ParseURL("mysql://u@h/db?" + query)
		_, err := mysql.Open(context.Background(), u, backends.Options{})
		var usage *backends.UsageError
		if !errors.As(err, &usage) || !strings.Contains(err.Error(), "PEM") && !strings.Contains(err.Error(), "/none.pem") {
			t.Errorf("Open with %s = %v; want a *UsageError that names the file", query, err)
		}
	}
}
