package main

import "strings"

// childEnv is the environment of COMMAND: ours, with the grant placed last and every earlier value of its variables
// taken out, because programs differ in which of two they take. A password that came in LOCKRUN_BACKEND is taken out of
// it; where the URL cannot be read for certain the variable is left out altogether.
func childEnv(_ *Config, env, grant []string) []string {
	out := make([]string, 0, len(env)+len(grant))
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		switch {
		case sets(grant, name):
		case name == "LOCKRUN_BACKEND" && strings.Contains(value, "://"):
			if safe, err := withoutPassword(value); err == nil {
				out = append(out, name+"="+safe)
			}
		default:
			out = append(out, kv)
		}
	}
	return append(out, grant...)
}

// sets tells whether one of vars is the variable of this name.
func sets(vars []string, name string) bool {
	for _, kv := range vars {
		if n, _, _ := strings.Cut(kv, "="); n == name {
			return true
		}
	}
	return false
}
