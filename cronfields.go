package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// cronField is one of the five fields of a cron expression.
type cronField struct {
	name     string
	min, max int
	names    string // of the values from min on, separated by spaces
}

var cronFields = [...]cronField{
	{"minute", 0, 59, ""}, {"hour", 0, 23, ""}, {"day of the month", 1, 31, ""},
	{"month", 1, 12, "jan feb mar apr may jun jul aug sep oct nov dec"},
	{"day of the week", 0, 7, "sun mon tue wed thu fri sat"},
}

var cronNicknames = []string{"@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"}

// checkCron refuses what no crontab means. The library is more lenient: it drops empty list entries, takes signs, and
// reads a range that runs backwards as one around the end, where crontab(5) knows none, so that a slip of the pen would
// name other runs than cron starts.
func checkCron(expr string) error {
	fields := strings.Fields(expr)
	if len(fields) > 0 && strings.Contains(fields[0], "=") {
		if err := checkZone(fields[0]); err != nil {
			return err
		}
		fields = fields[1:]
	}
	if len(fields) == 1 && strings.HasPrefix(fields[0], "@") {
		if !slices.Contains(cronNicknames, fields[0]) {
			return fmt.Errorf("%s is none of %s", quoted(fields[0]), strings.Join(cronNicknames, ", "))
		}
		return nil
	}
	if len(fields) != len(cronFields) {
		return fmt.Errorf("it has not five fields but %d", len(fields))
	}
	for i, f := range cronFields {
		for part := range strings.SplitSeq(fields[i], ",") {
			if err := f.check(part); err != nil {
				return fmt.Errorf("%s %s: %w", f.name, quoted(fields[i]), err)
			}
		}
	}
	return nil
}

// checkZone reads CRON_TZ=ZONE.
func checkZone(prefix string) error {
	name, zone, _ := strings.Cut(prefix, "=")
	if name != "CRON_TZ" && name != "TZ" || zone == "" {
		return fmt.Errorf("%s is not CRON_TZ=ZONE", quoted(prefix))
	}
	if _, err := time.LoadLocation(zone); err != nil {
		return fmt.Errorf("the time zone %s is not known on this host", quoted(zone))
	}
	return nil
}

// check reads one entry of a list: *, N, N-M, each of them with /STEP.
func (f cronField) check(part string) error {
	values, step, stepped := strings.Cut(part, "/")
	low, high := f.min, f.max
	if values != "*" && values != "?" {
		first, last, ranged := strings.Cut(values, "-")
		var err error
		if low, err = f.value(first); err != nil {
			return err
		}
		switch {
		case ranged:
			if high, err = f.value(last); err != nil {
				return err
			}
		case !stepped:
			high = low
		}
	}
	if low > high {
		return fmt.Errorf("%s runs backwards; write two ranges with a comma between them", quoted(values))
	}
	if n, err := cronNumber(step); stepped && (err != nil || n < 1 || n > 1 && n > high-low) {
		return fmt.Errorf("the step %s is not a number from 1 to less than the values it steps through", quoted(step))
	}
	return nil
}

// value reads a number or a name.
func (f cronField) value(s string) (int, error) {
	if i := slices.Index(strings.Fields(f.names), strings.ToLower(s)); i >= 0 {
		return f.min + i, nil
	}
	n, err := cronNumber(s)
	if err != nil || n < f.min || n > f.max {
		return 0, fmt.Errorf("%s is not from %d to %d", quoted(s), f.min, f.max)
	}
	return n, nil
}

// cronNumber reads digits and nothing else; Atoi alone takes a sign.
func cronNumber(s string) (int, error) {
	if strings.Trim(s, "0123456789") != "" {
		return 0, strconv.ErrSyntax
	}
	return strconv.Atoi(s)
}
