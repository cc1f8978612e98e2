package main

import (
	"strings"
	"testing"
	"time"
)

func at(t testing.TB, s string) time.Time {
	t.Helper()
	v, err := time.Parse(time.RFC3339, s)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestTickNearest(t *testing.T) {
	const berlin = "CRON_TZ=Europe/Berlin "
	for _, c := range []struct{ expr, now, want string }{
		// Hosts on both sides of the tick agree.
		{"CRON_TZ=UTC 0 1 * * *", "2026-11-30T00:57:00Z", "2026-11-30T01:00:00Z"},
		{"CRON_TZ=UTC 0 1 * * *", "2026-11-30T01:00:00Z", "2026-11-30T01:00:00Z"},
		{"CRON_TZ=UTC 0 1 * * *", "2026-11-30T01:03:59Z", "2026-11-30T01:00:00Z"},
		{"CRON_TZ=UTC 0 1 * * *", "2026-11-30T13:00:00Z", "2026-11-30T01:00:00Z"}, // the earlier of two as near
		{"CRON_TZ=UTC 0 1 * * *", "2026-11-30T13:00:01Z", "2026-12-01T01:00:00Z"},
		{"CRON_TZ=UTC */5 * * * *", "2026-11-30T10:07:00Z", "2026-11-30T10:05:00Z"},
		{"CRON_TZ=UTC */5 * * * *", "2026-11-30T10:08:00Z", "2026-11-30T10:10:00Z"},
		{"CRON_TZ=UTC @daily", "2026-11-30T23:58:00Z", "2026-12-01T00:00:00Z"},
		{"CRON_TZ=UTC @hourly", "2026-11-30T23:20:00Z", "2026-11-30T23:00:00Z"},
		{"CRON_TZ=UTC @yearly", "2026-11-30T00:00:00Z", "2027-01-01T00:00:00Z"},
		{"CRON_TZ=UTC 30 6 * jan-mar mon-fri", "2026-11-30T00:00:00Z", "2027-01-01T06:30:00Z"},
		{"CRON_TZ=UTC 0 0 29 2 *", "2101-06-01T00:00:00Z", "2104-02-29T00:00:00Z"},
		{"CRON_TZ=UTC 0 0 29 2 *", "2099-06-01T00:00:00Z", "2096-02-29T00:00:00Z"},
		{"CRON_TZ=UTC 0 12 * * 7", "2026-11-30T00:00:00Z", "2026-11-29T12:00:00Z"},
		// Day of month and day of week are alternatives where both are restricted, as in every crontab: the 13th, and
		// every Friday.
		{"CRON_TZ=UTC 0 12 13 * 5", "2026-11-06T11:00:00Z", "2026-11-06T12:00:00Z"},
		{"CRON_TZ=UTC 0 12 15 * 5", "2026-11-15T11:00:00Z", "2026-11-15T12:00:00Z"},
		{"CRON_TZ=UTC 0 12 */2 * 5", "2026-11-14T11:00:00Z", "2026-11-13T12:00:00Z"}, // a star: both have to match

		// Zones, in winter and in summer.
		{berlin + "0 6 * * *", "2026-01-15T05:10:00Z", "2026-01-15T05:00:00Z"},
		{berlin + "0 6 * * *", "2026-07-15T04:10:00Z", "2026-07-15T04:00:00Z"},
		{"CRON_TZ=Asia/Kolkata 0 0 * * *", "2026-07-14T18:31:00Z", "2026-07-14T18:30:00Z"},

		// 2026-03-29 02:00 becomes 03:00 in Berlin, at 01:00Z. A fixed job of the hour that is left out runs at once
		// after it, and from whichever side one looks.
		{berlin + "30 2 * * *", "2026-03-29T00:58:00Z", "2026-03-29T01:00:00Z"},
		{berlin + "30 2 * * *", "2026-03-29T01:00:00Z", "2026-03-29T01:00:00Z"},
		{berlin + "30 2 * * *", "2026-03-29T01:29:00Z", "2026-03-29T01:00:00Z"},
		{berlin + "30 2 * * *", "2026-03-29T01:31:00Z", "2026-03-29T01:00:00Z"},
		{berlin + "30 2 * * *", "2026-03-28T01:31:00Z", "2026-03-28T01:30:00Z"},
		{berlin + "30 2 * * *", "2026-03-30T00:31:00Z", "2026-03-30T00:30:00Z"},
		// One with a star is not made up for: 01:45 is followed by 03:00.
		{berlin + "*/15 * * * *", "2026-03-29T00:46:00Z", "2026-03-29T00:45:00Z"},
		{berlin + "*/15 * * * *", "2026-03-29T00:59:00Z", "2026-03-29T01:00:00Z"},
		{berlin + "30 * * * *", "2026-03-29T01:02:00Z", "2026-03-29T01:30:00Z"},

		// 2026-10-25 03:00 becomes 02:00 in Berlin, at 01:00Z. A fixed job runs the first time only.
		{berlin + "30 2 * * *", "2026-10-25T00:31:00Z", "2026-10-25T00:30:00Z"},
		{berlin + "30 2 * * *", "2026-10-25T01:31:00Z", "2026-10-25T00:30:00Z"},
		{berlin + "30 * * * *", "2026-10-25T01:29:00Z", "2026-10-25T01:30:00Z"},
		{berlin + "30 * * * *", "2026-10-25T00:29:00Z", "2026-10-25T00:30:00Z"},
		// A midnight that did not exist: Cairo 2026-04-24 00:00 becomes 01:00, at 2026-04-23T22:00Z.
		{"CRON_TZ=Africa/Cairo 0 0 * * *", "2026-04-23T22:10:00Z", "2026-04-23T22:00:00Z"},
		// Half an hour: Lord Howe Island goes from 02:00 to 02:30 on 2026-10-04, at 15:30Z the day before.
		{"CRON_TZ=Australia/Lord_Howe 15 2 * * *", "2026-10-03T15:31:00Z", "2026-10-03T15:30:00Z"},
		// A day that did not exist: Samoa went from the 29th to the 31st of December 2011, at 10:00Z.
		{"CRON_TZ=Pacific/Apia 0 12 30 12 *", "2011-12-30T11:00:00Z", "2011-12-30T10:00:00Z"},
	} {
		got, err := tickNearest(c.expr, at(t, c.now))
		if err != nil || got != c.want {
			t.Errorf("%s at %s: %s, %v; want %s", c.expr, c.now, got, err, c.want)
		}
	}
}

// Whoever looks at a tick from less than half the distance to its neighbours finds it, from both sides, all year round.
func TestTicksDoNotDependOnWhereOneStands(t *testing.T) {
	for _, expr := range []string{"CRON_TZ=Europe/Berlin 30 2 * * *", "CRON_TZ=America/New_York 15,45 1-3 * * *", "CRON_TZ=Africa/Cairo 0 0 * * *",
		"CRON_TZ=Australia/Lord_Howe */20 * * * *"} {
		s, err := parseSchedule(expr)
		if err != nil {
			t.Fatal(err)
		}
		for _, around := range []string{"2026-03-08", "2026-03-29", "2026-04-05", "2026-04-24", "2026-10-04", "2026-10-25", "2026-10-30", "2026-11-01"} {
			tick := s.after(at(t, around+"T00:00:00Z").Add(-24 * time.Hour))
			for range 60 {
				next := s.after(tick)
				if !next.After(tick) || !s.before(next).Equal(next) || !s.before(next.Add(-time.Second)).Equal(tick) {
					t.Fatalf("%s: after %v comes %v, before which is %v", expr, tick, next, s.before(next.Add(-time.Second)))
				}
				middle := tick.Add(next.Sub(tick) / 2)
				for _, now := range []time.Time{tick.Add(time.Second), middle.Add(-time.Second), middle} {
					if got, _ := s.nearest(now); !got.Equal(tick) {
						t.Fatalf("%s at %v: %v, want %v", expr, now, got, tick)
					}
				}
				if got, _ := s.nearest(middle.Add(time.Second)); next.Sub(tick) > 4*time.Second && !got.Equal(next) {
					t.Fatalf("%s at %v: %v, want %v", expr, middle.Add(time.Second), got, next)
				}
				tick = next
			}
		}
	}
}

func TestScheduleRefuses(t *testing.T) {
	for expr, why := range map[string]string{
		"": "no cron expression", "every day": "no cron expression", "* * * *": "no cron expression", "* * * * * *": "no cron expression",
		"61 * * * *": "no cron expression", "* * * * 8": "no cron expression", "@every 5m": "@every", "@reboot": "no cron expression",
		"CRON_TZ=Mars/Base * * * * *": "Mars/Base", "TZ=": "no cron expression", "TZ=0": "no cron expression", "CRON_TZ= * * * * *": "no cron expression",
		"CRON_TZ=../../etc/passwd * * * * *": "no cron expression", "0 0 31 2 *": "no day that ever comes", "H * * * *": "no cron expression",
		"*/0 * * * *": "no cron expression", "5-1/0 * * * *": "no cron expression", "* * * foo *": "no cron expression",
	} {
		if _, err := parseSchedule(expr); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: %v", expr, err)
		}
	}
}

// What a crontab would not take is a slip of the pen, and told in words that are not a library's.
func TestScheduleRefusesWhatNoCrontabTakes(t *testing.T) {
	for expr, why := range map[string]string{
		"5-1 * * * *":                  `minute "5-1": "5-1" runs backwards`,
		"* * * * fri-mon":              `day of the week "fri-mon": "fri-mon" runs backwards`,
		"1,2,,3 * * * *":               `minute "1,2,,3": "" is not from 0 to 59`,
		"* 1, * * *":                   `hour "1,": "" is not from 0 to 23`,
		"* * +5 * *":                   `day of the month "+5": "+5" is not from 1 to 31`,
		"* * * 13 *":                   `month "13": "13" is not from 1 to 12`,
		"*/x * * * *":                  `minute "*/x": the step "x" is not a number`,
		"*/60 * * * *":                 `minute "*/60": the step "60" is not a number`,
		"1-2-3 * * * *":                `minute "1-2-3": "2-3" is not from 0 to 59`,
		"1/2/3 * * * *":                `minute "1/2/3": the step "2/3" is not a number`,
		"99999999999999999999 * * * *": `minute "99999999999999999999": "99999999999999999999" is not from 0 to 59`,
		"* * * *":                      "it has not five fields but 4",
		"@nightly":                     `"@nightly" is none of @yearly`,
		"CRON_TZ=Mars/Base 1 * * * *":  `the time zone "Mars/Base" is not known on this host`,
		"ZONE=UTC 1 * * * *":           `"ZONE=UTC" is not CRON_TZ=ZONE`,
	} {
		_, err := parseSchedule(expr)
		if err == nil || !strings.HasPrefix(err.Error(), "is no cron expression: "+why) || !strings.Contains(err.Error(), "; write five fields") {
			t.Errorf("%q: %v", expr, err)
		}
	}
	for _, expr := range []string{"*/59 * * * *", "5/15 * * * *", "0-59/1,7 0 1 JAN-feb,12 sun,7", "? 0 ? * 5-7", "TZ=UTC @weekly", "CRON_TZ=UTC 1,2,3 * * * *"} {
		if _, err := parseSchedule(expr); err != nil {
			t.Errorf("%q: %v", expr, err)
		}
	}
}

func FuzzSchedule(f *testing.F) {
	for _, s := range []string{"0 1 * * *", "@daily", "CRON_TZ=Europe/Berlin 30 2 * * 1-5", "TZ=0", "*/7 1-3,5 ? jan *", "22-2 * * * fri-mon", "59/1 0 31 2 1"} {
		f.Add(s, int64(1_800_000_000))
	}
	f.Fuzz(func(t *testing.T, expr string, unix int64) {
		now := time.Unix(unix%(1<<36), 0)
		id, err := tickNearest(expr, now)
		if err != nil {
			if err == errNoCron {
				t.Errorf("%q is refused without a reason", expr)
			}
			return
		}
		tick := at(t, id)
		if again, err := tickNearest(expr, tick); err != nil || again != id {
			t.Errorf("%q: the tick nearest to %s is %s, %v", expr, id, again, err)
		}
	})
}

// A zone that Go cannot read counts as UTC for it, and hosts would name different runs.
func TestAZoneThatIsNotKnownIsNotUTC(t *testing.T) {
	if _, err := time.LoadLocation("Europe/Berlin"); err != nil {
		t.Skip("no time zone database here")
	}
	for _, tz := range []string{"Mars/Olympus", "CET-1CEST,M3.5.0,M10.5.0/3", "/nonexistent/zone", "/etc/hostname", ":Mars/Olympus"} {
		t.Setenv("TZ", tz)
		if _, err := parseSchedule("0 1 * * *"); err == nil || !strings.Contains(err.Error(), "CRON_TZ=UTC") {
			t.Errorf("TZ=%s: %v", tz, err)
		}
		if _, err := parseSchedule("CRON_TZ=UTC 0 1 * * *"); err != nil {
			t.Errorf("TZ=%s, and a zone of its own: %v", tz, err)
		}
	}
	for _, tz := range []string{"", "UTC", "Europe/Berlin", ":Europe/Berlin", "/usr/share/zoneinfo/Europe/Berlin"} {
		t.Setenv("TZ", tz)
		if _, err := parseSchedule("0 1 * * *"); err != nil {
			t.Errorf("TZ=%s: %v", tz, err)
		}
	}
}
