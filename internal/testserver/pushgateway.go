package testserver

import (
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strconv"
	"time"
)

// Pushgateway is Prometheus' Pushgateway.
type Pushgateway struct {
	*Process
	port int
}

// StartPushgateway starts one that keeps nothing on disk.
func StartPushgateway(t TB) *Pushgateway {
	t.Helper()
	Need(t, "prometheus-pushgateway")
	p, dir := &Pushgateway{}, newFolder(t, "pushgateway")
	p.Process = launch(t, func() (spec, error) {
		var err error
		if p.port, err = freePort(); err != nil {
			return spec{}, err
		}
		return spec{
			name:  "pushgateway on port " + strconv.Itoa(p.port),
			argv:  []string{find("prometheus-pushgateway"), "--web.listen-address=127.0.0.1:" + strconv.Itoa(p.port)},
			log:   filepath.Join(dir, "log"),
			data:  filepath.Join(dir, "data"),
			ready: p.answers,
			quit:  10 * time.Second,
		}, makeFolder(filepath.Join(dir, "data"))
	})
	return p
}

// URL is what --pushgateway is given.
func (p *Pushgateway) URL() string { return "http://127.0.0.1:" + strconv.Itoa(p.port) }

// Metrics is what Prometheus would scrape.
func (p *Pushgateway) Metrics() (string, error) {
	client := &http.Client{Timeout: 10 * time.Second}
	answer, err := client.Get(p.URL() + "/metrics")
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("it answered %s", answer.Status)
	}
	return string(text), err
}

// answers tells whether it is ready. Whose port it is shows in its log, where another has it.
func (p *Pushgateway) answers(int) error {
	_, err := p.Metrics()
	return err
}
