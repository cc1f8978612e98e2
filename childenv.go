package main

import "strings"

// childEnv is the environment of COMMAND: ours, with the grant placed last and every earlier value of its variables
// taken out, because programs differ in which of two they take. A password that came in LOCKRUN_BACKEND, or in the variable of
// another store, is taken out of it; where a URL cannot be read for certain the variable is left out altogether. So are those
// of observers, which are passwords as a whole, or may hold some.
func childEnv(_ *Config, env, grant []string) []string {
	out := make([]string, 0, len(env)+len(grant))
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		switch {
		case sets(grant, name):
		case namesStores(name) && isURL(value):
			if safe, err := withoutPasswords(value); err == nil {
				out = append(out, name+"="+safe)
			}
		case name == "LOCKRUN_PUSHGATEWAY" || name == "LOCKRUN_PING" || name == "LOCKRUN_HOOK":
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

// namesStores tells the variables that may hold the URL of a store.
func namesStores(name string) bool {
	return name == "LOCKRUN_BACKEND" || name == "LOCKRUN_RECORD" || name == "LOCKRUN_FALLBACK"
}

// withoutPasswords does withoutPassword for each line.
func withoutPasswords(value string) (string, error) {
	lines := strings.Split(value, "\n")
	for i, line := range lines {
		if !isURL(line) {
			continue
		}
		safe, err := withoutPassword(line)
		if err != nil {
			return "", err
		}
		lines[i] = safe
	}
	return strings.Join(lines, "\n"), nil
}
