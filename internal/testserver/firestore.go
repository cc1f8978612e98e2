package testserver

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Firestore is Google's own emulator of it. It keeps everything in memory, so that a restart loses it.
type Firestore struct {
	*Process
	port int
	dir  string
}

// firestoreJar is the emulator as Google's package google-cloud-cli-firestore-emulator installs it.
const firestoreJar = "cloud-firestore-emulator.jar"

// StartFirestore starts one emulator. Any project and any database exist in it.
func StartFirestore(t TB) *Firestore {
	t.Helper()
	Need(t, firestoreJar, "java")
	f := &Firestore{dir: newFolder(t, "firestore")}
	f.Process = launch(t, f.choose)
	return f
}

func (f *Firestore) choose() (spec, error) {
	var err error
	if f.port, err = freePort(); err != nil {
		return spec{}, err
	}
	data := filepath.Join(f.dir, "data")
	return spec{
		name: fmt.Sprintf("the Firestore emulator on port %d", f.port),
		// The flags make Java start sooner and stay small; nothing here runs long enough for its second compiler.
		argv: []string{find("java"), "-Duser.language=en", "-Djava.io.tmpdir=" + f.dir, "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
			"-cp", find(firestoreJar), "com.google.cloud.datastore.emulator.firestore.CloudFirestore",
			"--host=127.0.0.1", fmt.Sprintf("--port=%d", f.port)},
		log:   filepath.Join(f.dir, "log"),
		data:  data,
		ready: f.answers,
		quit:  10 * time.Second,
	}, makeFolder(data)
}

// Addr is the emulator's address, as FIRESTORE_EMULATOR_HOST has it.
func (f *Firestore) Addr() string { return addr(f.port) }

// URL is how lockrun is told of a collection in this emulator.
func (f *Firestore) URL(collection string) string {
	return "firestore://lockrun-test/" + collection + "?emulator=" + f.Addr()
}

// Clear removes every document of the project that URL names.
func (f *Firestore) Clear() {
	f.t.Helper()
	req, err := http.NewRequest(http.MethodDelete, "http://"+f.Addr()+"/emulator/v1/projects/lockrun-test/databases/(default)/documents", nil)
	if err != nil {
		f.t.Fatalf("%v", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		f.t.Fatalf("emptying %s: %v", f.spec.name, err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		f.t.Fatalf("emptying %s: %s", f.spec.name, resp.Status)
	}
}

// answers is the readiness check. It does not tell which process answers, but one that finds its port taken says so and
// ends.
func (f *Firestore) answers(int) error {
	c := http.Client{Timeout: respBound}
	resp, err := c.Get("http://" + f.Addr() + "/")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && strings.TrimSpace(string(text)) != "Ok" {
		err = errors.New("it is not the emulator that answers")
	}
	if err != nil {
		return err
	}
	log, err := os.ReadFile(filepath.Join(f.dir, "log"))
	if err == nil && !strings.Contains(string(log), "API endpoint: http://"+f.Addr()) {
		err = errors.New("it has not said yet that it runs")
	}
	if err != nil {
		return err
	}
	return f.warmUp()
}

// warmUp asks for one of each kind of request in a project of its own. The first of them takes seconds on a busy machine,
// longer than clients wait, as Java loads what it needs only then.
func (f *Firestore) warmUp() error {
	const database = "projects/warm-up/databases/(default)/documents"
	c := http.Client{Timeout: patience}
	for _, ask := range [][2]string{
		{"commit", `{"writes":[{"update":{"name":"` + database + `/a/b","fields":{"c":{"integerValue":"1"}}}}]}`},
		{"batchGet", `{"documents":["` + database + `/a/b"]}`},
		{"runQuery", `{"structuredQuery":{"from":[{"collectionId":"a"}],"orderBy":[{"field":{"fieldPath":"c"}}]}}`},
	} {
		req, err := http.NewRequest(http.MethodPost, "http://"+f.Addr()+"/v1/"+database+":"+ask[0], strings.NewReader(ask[1]))
		if err != nil {
			return err
		}
		req.Header.Set("Authorization", "Bearer owner")
		resp, err := c.Do(req)
		if err != nil {
			return err
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s", ask[0], resp.Status)
		}
	}
	return nil
}
