package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"
)

// configFile is one configuration file, with the place of each of its settings.
type configFile struct {
	path     string
	top      map[string]setting            // by configuration key
	jobs     map[string]map[string]setting // by --key, then by configuration key
	backends map[string]namedBackend       // by NAME
}

// namedBackend is a [backends.NAME] table.
type namedBackend struct {
	url          string
	passwordFile string // absolute, or relative to the folder of the configuration file
	from         string // file and line
}

// maxConfig bounds a configuration file, so that one that was named by mistake is not read for ever.
const maxConfig = 1 << 20

// systemConfig is the configuration of the host.
var systemConfig = "/etc/lockrun/config.toml"

// readConfig reads one file. A missing one is a nil *configFile where mayMiss is set. Problems name file and line, and
// never show a value: it may be a secret.
func readConfig(path string, mayMiss bool) (*configFile, []problem) {
	data, err := readBounded(path)
	if mayMiss && (errors.Is(err, os.ErrNotExist) || isNotDir(err)) {
		return nil, nil
	}
	if err != nil {
		hint := readable(err)
		if mayMiss && path != systemConfig && errors.Is(err, os.ErrPermission) { // sudo, su and cron may leave them behind
			hint = "; does HOME or XDG_CONFIG_HOME point to another user's folder?"
		}
		return nil, []problem{{codeConfig, fmt.Sprintf("config file %s cannot be read: %v%s", path, pathCause(err), hint)}}
	}
	return parseConfig(path, data)
}

func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxConfig+1))
	if err == nil && len(data) > maxConfig {
		return nil, errors.New("it is larger than 1 MiB")
	}
	return data, err
}

// readable is what would make a file readable that could not be read, or "".
func readable(err error) string {
	switch {
	case errors.Is(err, os.ErrNotExist), isNotDir(err):
		return "; correct the path"
	case errors.Is(err, os.ErrPermission):
		return "; let this user read it"
	}
	return ""
}

// pathCause is the cause without the path, which the message has already.
func pathCause(err error) error {
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// parseConfig reads the text of a configuration file and finds everything that is wrong with it.
func parseConfig(path string, data []byte) (*configFile, []problem) {
	r := &tomlReader{path: path, file: &configFile{
		path: path, top: map[string]setting{}, jobs: map[string]map[string]setting{}, backends: map[string]namedBackend{},
	}}
	if line := tooDeep(data); line > 0 {
		return r.file, []problem{{codeConfig, fmt.Sprintf("%s:%d: with this line the keys are nested too deeply, or too long; lockrun needs no deeper table than [jobs.KEY]", path, line)}}
	}
	var top map[string]toml.Primitive
	md, err := toml.Decode(string(data), &top)
	if err != nil {
		line, why := 0, err.Error()
		var syntax toml.ParseError
		if errors.As(err, &syntax) {
			line, why = syntax.Position.Line, ourVoice(syntax.Message)
		}
		return r.file, []problem{{codeConfig, fmt.Sprintf("%s:%d: %s", path, line, why)}}
	}
	r.md = md
	r.readTop(top)
	return r.file, r.problems
}

// ourVoice makes no sentence of what the library says.
func ourVoice(message string) string {
	message = strings.TrimSuffix(message, ".")
	if first, rest, _ := strings.Cut(message, " "); first == "Key" || first == "Escaped" {
		return strings.ToLower(first) + " " + rest
	}
	return message
}

// tomlReader walks a file that has been parsed.
type tomlReader struct {
	path     string
	md       toml.MetaData
	file     *configFile
	problems []problem
}

func (r *tomlReader) readTop(top map[string]toml.Primitive) {
	for _, name := range sortedKeys(top) {
		switch name {
		case "jobs":
			r.eachTable(name, top[name], r.readJob)
		case "backends":
			r.eachTable(name, top[name], r.readBackend)
		default:
			r.readSetting(r.file.top, name, top[name], "")
		}
	}
}

// eachTable hands out the tables of [name.X].
func (r *tomlReader) eachTable(name string, p toml.Primitive, read func(string, map[string]toml.Primitive, toml.Primitive)) {
	var tables map[string]toml.Primitive
	if !decodeTable(&r.md, p, &tables) {
		r.wrong(p, "%s is not a table; write [%s.NAME]", name, name)
		return
	}
	for _, n := range sortedKeys(tables) {
		var table map[string]toml.Primitive
		if !decodeTable(&r.md, tables[n], &table) {
			r.wrong(tables[n], "%s.%s is not a table; write [%s.%s]", name, n, name, n)
			continue
		}
		read(n, table, tables[n])
	}
}

func (r *tomlReader) readJob(name string, table map[string]toml.Primitive, _ toml.Primitive) {
	job := map[string]setting{}
	for _, k := range sortedKeys(table) {
		var below map[string]toml.Primitive
		switch {
		case k == "key":
			r.wrong(table[k], "key has no place in a job's table, whose name is the key")
			continue
		case tomlOption(k) == nil && decodeTable(&r.md, table[k], &below): // TOML takes [jobs.a.b] for a table b within a
			r.wrong(table[k], "unknown key %s in [jobs.%s]; the name of a job with a dot in it is quoted: [jobs.%q]", k, name, name+"."+k)
			continue
		}
		r.readSetting(job, k, table[k], " in [jobs."+name+"]")
	}
	r.file.jobs[name] = job
}

func (r *tomlReader) readBackend(name string, table map[string]toml.Primitive, p toml.Primitive) {
	b := namedBackend{from: r.at(p)}
	for _, k := range sortedKeys(table) {
		var text string
		switch {
		case k != "url" && k != "password_file":
			r.wrong(table[k], "unknown key %s in [backends.%s]; url and password_file are known", k, name)
		case r.md.PrimitiveDecode(table[k], &text) != nil || text == "":
			r.wrong(table[k], "%s is not a string with something in it", k)
		case k == "url":
			b.url, b.from = text, r.at(table[k])
		default:
			b.passwordFile = text
			if !filepath.IsAbs(text) {
				b.passwordFile = filepath.Join(filepath.Dir(r.path), text)
			}
		}
	}
	if b.url == "" {
		r.wrong(p, "[backends.%s] has no url", name)
	}
	r.file.backends[name] = b
}

// readSetting reads one option's value.
func (r *tomlReader) readSetting(into map[string]setting, name string, p toml.Primitive, where string) {
	o := tomlOption(name)
	if o == nil {
		r.wrong(p, "unknown key %s%s; lockrun help tells the options, whose dashes become underscores here", name, where)
		return
	}
	values, err := o.fromTOML(&r.md, p)
	if err != nil {
		var placed *placedError
		if errors.As(err, &placed) {
			p = placed.at
		}
		r.wrong(p, "%s %v", name, err)
		return
	}
	into[name] = setting{values: values, from: r.at(p), level: fromFile}
}

// placedError is what is wrong with a part of a value.
type placedError struct {
	at toml.Primitive
	error
}

// fromTOML gives the value of the option as text, or an error that names the type it has to have.
func (o *option) fromTOML(md *toml.MetaData, p toml.Primitive) ([]string, error) {
	switch o.kind {
	case kindSwitch:
		var v bool
		if md.PrimitiveDecode(p, &v) != nil {
			return nil, errors.New("is neither true nor false")
		}
		return []string{strconv.FormatBool(v)}, nil
	case kindCount:
		var v int64
		if md.PrimitiveDecode(p, &v) != nil {
			return nil, errors.New("is not a whole number")
		}
		return []string{strconv.FormatInt(v, 10)}, nil
	case kindPairs:
		var v map[string]int64
		if !decodeTable(md, p, &v) {
			return nil, errors.New("is not a table of numbers; write it like { skipped = 0 }")
		}
		return pairs(v), nil
	case kindList:
		var one string
		if md.PrimitiveDecode(p, &one) == nil {
			return []string{one}, nil
		}
		var all []string
		if md.PrimitiveDecode(p, &all) != nil || len(all) == 0 {
			return nil, errors.New("is neither a string nor an array of strings; write it like [\"a\", \"b\"]")
		}
		return all, nil
	case kindHooks:
		return hooksFromTOML(md, p)
	default:
		var v string
		if md.PrimitiveDecode(p, &v) != nil {
			return nil, errors.New("is not a string; put it in quotes")
		}
		return []string{v}, nil
	}
}

func pairs(m map[string]int64) []string {
	var out []string
	for _, k := range sortedKeys(m) {
		out = append(out, k+"="+strconv.FormatInt(m[k], 10))
	}
	return out
}

func (r *tomlReader) wrong(p toml.Primitive, format string, a ...any) {
	r.problems = append(r.problems, problem{codeConfig, r.at(p) + ": " + fmt.Sprintf(format, a...)})
}

// at is the file and line of a value.
func (r *tomlReader) at(p toml.Primitive) string {
	return r.path + ":" + strconv.Itoa(r.line(p))
}

// line finds the line of a value. The library tells positions only in its errors, so it is made to fail; a table that
// no line opens (a.b = 1) is where the first of its values is. Its ParseError would count columns, too, by splitting the
// whole file anew each time; what it says of a type that it does not support has the line alone.
func (r *tomlReader) line(p toml.Primitive) int {
	n := 0
	if err := r.md.PrimitiveDecode(p, new(func())); err != nil {
		fmt.Sscanf(err.Error(), "toml: line %d ", &n)
	}
	if n > 0 {
		return n
	}
	first := 0
	var table map[string]toml.Primitive
	if decodeTable(&r.md, p, &table) {
		for _, v := range table {
			if n := r.line(v); n > 0 && (first == 0 || n < first) {
				first = n
			}
		}
	}
	return first
}

// decodeTable reads a table. The library leaves a map alone, without an error, where the value is none.
func decodeTable(md *toml.MetaData, p toml.Primitive, into any) bool {
	var v any
	if md.PrimitiveDecode(p, &v) != nil {
		return false
	}
	if _, ok := v.(map[string]any); !ok {
		return false
	}
	return md.PrimitiveDecode(p, into) == nil
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// configPaths are the files that are read without being named, the user's before the system's.
func configPaths(env environ) []string {
	var paths []string
	base := env["XDG_CONFIG_HOME"]
	if !filepath.IsAbs(base) && strings.HasPrefix(env["HOME"], "/") {
		base = filepath.Join(env["HOME"], ".config")
	}
	if filepath.IsAbs(base) {
		paths = append(paths, filepath.Join(base, "lockrun", "config.toml"))
	}
	return append(paths, systemConfig)
}
