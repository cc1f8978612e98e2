package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/netresearch/go-cron"
)

// schedule is a cron expression whose ticks name runs.
//
// The library reads the expression; the ticks are found here. Its Next and Prev (and those of the project it was forked
// from) answer differently around a change of the clock: a tick inside the hour that is left out in spring exists when
// one looks from before it and not when one looks from after it, and so two hosts a minute apart would name different
// runs. Here the ticks of a day are a set that does not depend on where one stands.
type schedule struct {
	bits  *cron.SpecSchedule
	loc   *time.Location
	or    bool // day of month and day of week are both restricted: either will do, as in every crontab
	fixed bool // neither minute nor hour begins with *: such a tick happens once when clocks change, no more and no less
}

// searchDays is how far ticks can be apart: February 29th around 2100, which is no leap year.
const searchDays = 8*366 + 1

// tickNearest names the run that belongs to now: the tick nearest to it, in UTC. Hosts whose starts, or clocks, differ
// by less than half the distance between two ticks agree on it. The expression is in the zone of its CRON_TZ, or of the
// host where it has none, as cron itself reads it.
func tickNearest(expr string, now time.Time) (string, error) {
	s, err := parseSchedule(expr)
	if err != nil {
		return "", err
	}
	t, ok := s.nearest(now)
	if !ok {
		return "", errNoTick
	}
	return t.UTC().Format(time.RFC3339), nil
}

var (
	errNoTick = errors.New("names no day that ever comes")
	errNoCron = errors.New("is no cron expression")
)

// parseSchedule reads five fields with names, steps, ranges and lists, or @yearly, @monthly, @weekly, @daily, @hourly,
// and CRON_TZ=ZONE before either.
func parseSchedule(expr string) (s *schedule, err error) {
	defer func() { // what a user writes must not end a run with a stack trace, whatever the library does with it
		if r := recover(); r != nil {
			s, err = nil, errNoCron
		}
	}()
	expr = strings.TrimSpace(expr)
	if strings.Contains(expr, "@every") {
		return nil, errors.New("has no ticks that all hosts agree on, because @every counts from the start; use */N")
	}
	if err := checkCron(expr); err != nil {
		return nil, fmt.Errorf("%w: %w; write five fields like '0 1 * * *', or @daily, and CRON_TZ=UTC before it for another zone%s", errNoCron, err, zoneHint(expr))
	}
	if !strings.Contains(expr, "TZ=") {
		if err := checkLocalZone(); err != nil {
			return nil, err
		}
	}
	parser, err := cron.TryNewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)
	if err != nil {
		return nil, err
	}
	parsed, err := parser.Parse(expr)
	if err != nil {
		return nil, errNoCron
	}
	bits, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return nil, errNoCron
	}
	s = &schedule{bits: bits, loc: bits.Location}
	s.readStars(expr)
	if _, ok := s.nearest(time.Now()); !ok {
		return nil, errNoTick
	}
	return s, nil
}

// checkLocalZone refuses a TZ that cannot be read. Go takes it for UTC without a word, and a host on which only that is so
// would name other runs than the rest.
func checkLocalZone() error {
	tz := strings.TrimPrefix(os.Getenv("TZ"), ":")
	if tz == "" {
		return nil // the host's own, or UTC
	}
	var err error
	if filepath.IsAbs(tz) {
		var data []byte
		if data, err = os.ReadFile(tz); err == nil {
			_, err = time.LoadLocationFromTZData(tz, data)
		}
	} else {
		_, err = time.LoadLocation(tz)
	}
	if err == nil {
		return nil
	}
	return fmt.Errorf("is in the time zone of this host, and TZ=%s names none that is known here; set TZ to a name like Europe/Berlin, or write CRON_TZ=UTC before the expression%s",
		quoted(tz), zoneHint("TZ="))
}

// zoneHint helps in an image without a time zone database. It is not linked into lockrun: 450 KB in each start's address
// space, and out of date with the next law.
func zoneHint(expr string) string {
	if _, err := time.LoadLocation("Europe/Berlin"); err != nil && strings.Contains(expr, "TZ=") {
		return "; this host has no time zone database (package tzdata), so that only UTC is known"
	}
	return ""
}

// readStars looks at what the parsed bits no longer tell: which fields begin with a star.
func (s *schedule) readStars(expr string) {
	fields := strings.Fields(expr)
	if strings.Contains(fields[0], "TZ=") {
		fields = fields[1:]
	}
	if len(fields) < 5 {
		s.fixed = fields[0] != "@hourly"
		return
	}
	star := func(i int) bool { return fields[i][0] == '*' || fields[i][0] == '?' }
	s.fixed = !star(0) && !star(1)
	s.or = !star(2) && !star(4)
}

// nearest is the tick nearest to now, the earlier one of two that are as near.
func (s *schedule) nearest(now time.Time) (time.Time, bool) {
	before, after := s.before(now), s.after(now)
	switch {
	case before.IsZero():
		return after, !after.IsZero()
	case after.IsZero() || now.Sub(before) <= after.Sub(now):
		return before, true
	}
	return after, true
}

// before is the last tick that is not after now; the zero time where there is none.
func (s *schedule) before(now time.Time) (last time.Time) {
	y, m, d := now.In(s.loc).Date()
	for i := 1; i >= -searchDays && last.IsZero(); i-- { // from tomorrow: a tick that a change of clocks moved over midnight
		for _, t := range s.ticks(y, m, d+i) {
			if !t.After(now) && t.After(last) {
				last = t
			}
		}
	}
	return last
}

// after is the first tick after now; the zero time where there is none.
func (s *schedule) after(now time.Time) (first time.Time) {
	y, m, d := now.In(s.loc).Date()
	for i := -1; i <= searchDays && first.IsZero(); i++ {
		for _, t := range s.ticks(y, m, d+i) {
			if t.After(now) && (first.IsZero() || t.Before(first)) {
				first = t
			}
		}
	}
	return first
}

// ticks are the instants of one day of the calendar, which may be out of the month's range, as time.Date allows.
func (s *schedule) ticks(year int, month time.Month, day int) (ticks []time.Time) {
	noon := time.Date(year, month, day, 12, 0, 0, 0, time.UTC)
	year, month, day = noon.Date()
	if s.bits.Month>>month&1 == 0 || !s.dayMatches(day, noon.Weekday()) {
		return nil
	}
	for hour := range 24 {
		if s.bits.Hour>>hour&1 == 0 {
			continue
		}
		for minute := range 60 {
			if s.bits.Minute>>minute&1 != 0 {
				ticks = s.instants(ticks, year, month, day, hour, minute)
			}
		}
	}
	return ticks
}

func (s *schedule) dayMatches(day int, weekday time.Weekday) bool {
	dom, dow := s.bits.Dom>>day&1 != 0, s.bits.Dow>>weekday&1 != 0
	if s.or {
		return dom || dow
	}
	return dom && dow
}

// instants adds the moments at which a clock on the wall shows this minute: one, none where clocks go forward, two where
// they go back. Cron runs a fixed job once in each case, right after a gap and the first time in a fold, and one with
// stars whenever the clock matches.
func (s *schedule) instants(ticks []time.Time, year int, month time.Month, day, hour, minute int) []time.Time {
	wall := time.Date(year, month, day, hour, minute, 0, 0, time.UTC)
	shown := func(t time.Time) bool {
		y, m, d := t.Date()
		return y == year && m == month && d == day && t.Hour() == hour && t.Minute() == minute
	}
	early, late := s.offsets(wall)
	first, second := wall.Add(-late).In(s.loc), wall.Add(-early).In(s.loc)
	if second.Before(first) {
		first, second = second, first
	}
	switch {
	case shown(first) && shown(second) && !first.Equal(second) && !s.fixed:
		return append(ticks, first, second)
	case shown(first):
		return append(ticks, first)
	case shown(second):
		return append(ticks, second)
	case s.fixed:
		// In the gap: wall time read with the offset before it lies after the change, and the change is the start of
		// the zone's period there.
		start, _ := second.ZoneBounds()
		return append(ticks, start.In(s.loc))
	}
	return ticks
}

// offsets are the zone's distances from UTC a day before and a day after: what a clock may show around a change. Two
// changes within two days do not occur in the time zone database outside of Ramadan's rules, which are weeks apart.
func (s *schedule) offsets(wall time.Time) (early, late time.Duration) {
	_, a := wall.Add(-24 * time.Hour).In(s.loc).Zone()
	_, b := wall.Add(24 * time.Hour).In(s.loc).Zone()
	return time.Duration(a) * time.Second, time.Duration(b) * time.Second
}
