package testserver

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// PrometheusConfig is what a Prometheus scrapes and judges.
type PrometheusConfig struct {
	Targets map[string]string // job name to host:port, whose /metrics is scraped five times a second
	Rules   []string          // files of rules, evaluated as often
	Text    string            // a configuration file without intervals, in place of Targets and Rules
}

// Prometheus is one server that is fed by Targets.
type Prometheus struct {
	*Process
	port   int
	dir    string
	config PrometheusConfig
}

// StartPrometheus starts one server.
func StartPrometheus(t TB, config PrometheusConfig) *Prometheus {
	t.Helper()
	Need(t, "prometheus")
	p := &Prometheus{dir: newFolder(t, "prometheus"), config: config}
	p.Process = launch(t, p.choose)
	return p
}

func (p *Prometheus) choose() (spec, error) {
	var err error
	if p.port, err = freePort(); err != nil {
		return spec{}, err
	}
	file := filepath.Join(p.dir, "prometheus.yml")
	if err := os.WriteFile(file, []byte(p.config.text()), 0o600); err != nil {
		return spec{}, err
	}
	return spec{
		name: fmt.Sprintf("prometheus on port %d", p.port),
		argv: []string{find("prometheus"), "--config.file", file, "--storage.tsdb.path", filepath.Join(p.dir, "data"),
			"--web.listen-address", addr(p.port)},
		log:   filepath.Join(p.dir, "log"),
		data:  filepath.Join(p.dir, "data"),
		ready: p.answers,
		quit:  10 * time.Second,
	}, nil
}

func (c PrometheusConfig) text() string {
	var b strings.Builder
	b.WriteString("global: {scrape_interval: 200ms, scrape_timeout: 200ms, evaluation_interval: 200ms}\n")
	if c.Text != "" {
		return b.String() + c.Text
	}
	b.WriteString("rule_files:\n")
	for _, r := range c.Rules {
		fmt.Fprintf(&b, "  - %q\n", r)
	}
	b.WriteString("scrape_configs:\n")
	for job, target := range c.Targets {
		fmt.Fprintf(&b, "  - {job_name: %q, static_configs: [{targets: [%q]}]}\n", job, target)
	}
	return b.String()
}

// Addr is where clients connect.
func (p *Prometheus) Addr() string { return addr(p.port) }

func (p *Prometheus) answers(int) error {
	_, err := p.get("/-/ready")
	return err
}

func (p *Prometheus) get(path string) ([]byte, error) {
	client := http.Client{Timeout: 10 * time.Second}
	r, err := client.Get("http://" + addr(p.port) + path)
	if err != nil {
		return nil, err
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err == nil && r.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", r.Status, body)
	}
	return body, err
}

// Sample is one series of a query's result, at one moment.
type Sample struct {
	Metric map[string]string
	Value  [2]any // seconds, and the value as text
}

// Query evaluates an expression now. An expression that is none is an error.
func (p *Prometheus) Query(expr string) ([]Sample, error) {
	body, err := p.get("/api/v1/query?query=" + url.QueryEscape(expr))
	if err != nil {
		return nil, err
	}
	var answer struct {
		Data struct{ Result []Sample }
	}
	err = json.Unmarshal(body, &answer)
	return answer.Data.Result, err
}

// Rule is one rule as the server sees it.
type Rule struct {
	Name, Type, State, Health, LastError string
}

// Rules are all of the server's.
func (p *Prometheus) Rules() ([]Rule, error) {
	body, err := p.get("/api/v1/rules")
	if err != nil {
		return nil, err
	}
	var answer struct {
		Data struct{ Groups []struct{ Rules []Rule } }
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, err
	}
	var all []Rule
	for _, g := range answer.Data.Groups {
		all = append(all, g.Rules...)
	}
	return all, nil
}
