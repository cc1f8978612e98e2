package main

import (
	"slices"
	"testing"
)

func TestChildEnv(t *testing.T) {
	grant := []string{"LOCKRUN_KEY=k", "LOCKRUN_TOKEN=7", "LOCKRUN_RUN_ID="}
	got := childEnv(&Config{}, []string{"A=1", "LOCKRUN_TOKEN=99", "B=2", "LOCKRUN_TOKEN=98", "LOCKRUN_KEY=x", "A=3", "odd", "LOCKRUN_TTL=5m", "LOCKRUN_RUN_ID=old"}, grant)
	want := []string{"A=1", "B=2", "A=3", "odd", "LOCKRUN_TTL=5m", "LOCKRUN_KEY=k", "LOCKRUN_TOKEN=7", "LOCKRUN_RUN_ID="}
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

func TestChildEnvHidesThePassword(t *testing.T) {
	for url, want := range map[string]string{
		"redis://u:pw@h:1/0?tls=true": "LOCKRUN_BACKEND=redis://u@h:1/0?tls=true",
		"redis://:pw@h":               "LOCKRUN_BACKEND=redis://@h",
		"redis://u@h/0":               "LOCKRUN_BACKEND=redis://u@h/0",
		"sqlite:///var/x.db":          "LOCKRUN_BACKEND=sqlite:///var/x.db",
		"prod":                        "LOCKRUN_BACKEND=prod",
		"redis://u:pw@h\nlocal\nmysql://v:pw@i/d": "LOCKRUN_BACKEND=redis://u@h\nlocal\nmysql://v@i/d",
		"redis://u@h\nredis://u:p#w@h":            "",
		"redis://u:p#w@h":                         "", // ambiguous: not shown at all
		"redis://u:p@w@h":                         "",
		"redis:/u:pw@h":                           "", // no URL, but meant as one
		"u:pw@h/x":                                "",
		"local\nu:pw@h":                           "",
	} {
		var wanted []string
		if want != "" {
			wanted = []string{want}
		}
		if got := childEnv(&Config{}, []string{"LOCKRUN_BACKEND=" + url}, nil); !slices.Equal(got, wanted) {
			t.Errorf("%s: %q", url, got)
		}
	}
	for _, name := range []string{"LOCKRUN_RECORD", "LOCKRUN_FALLBACK"} {
		if got := childEnv(&Config{}, []string{name + "=redis://u:pw@h"}, nil); !slices.Equal(got, []string{name + "=redis://u@h"}) {
			t.Errorf("%s: %q", name, got)
		}
	}
}
