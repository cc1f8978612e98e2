package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/lockrun/lockrun/backends"
)

// lateness is how long after its end a run may still be recorded: by a host that was suspended, or whose store did not
// answer. Whoever follows looks back so far each time, and tells what it has told by its fingerprint.
const lateness = 5 * time.Minute

// followBusy bounds what following may cost a store that has to be asked: a tenth of its time. What asking costs is the
// least of the last followJudged answers, since a single late one tells of a store that stood still, and whoever stays away
// for ten times as long after that misses its return.
const (
	followBusy   = 10
	followJudged = 4
)

// follower tells the records of one store as they are written.
type follower struct {
	c     *call
	b     backends.Backend
	q     backends.Query
	told  map[string]time.Time // fingerprints of what was told, and when that ended
	began time.Time            // the store's clock when following began
	at    time.Duration        // the host's at that moment
	tell  func(backends.Record) error
	took  []time.Duration // the last answers of a store that has to be asked
	away  bool            // the store does not answer, which has been told
}

// follow prints the last records, oldest first, and then each new one, until a signal or a reader that is gone ends it.
func (c *call) follow() int {
	life := c.untilStopped()
	defer life.close()
	b, err := c.openWithin(life.ctx)
	if err != nil {
		return life.failed(err)
	}
	defer func() { _ = b.Close() }()
	f := &follower{c: c, b: b, told: map[string]time.Time{}}
	past, err := f.begin(life.ctx)
	if err != nil {
		return life.failed(err)
	}
	p := c.page()
	f.tell = c.teller(p, past)
	for _, r := range past {
		if err = f.tell(r); err != nil {
			break
		}
	}
	for err == nil {
		err = f.run(life.ctx)
	}
	if life.ctx.Err() == nil && p.err == nil {
		return c.failed(err)
	}
	return life.code(p)
}

// openWithin opens the store within the backend timeout.
func (c *call) openWithin(ctx context.Context) (backends.Backend, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.BackendTimeout)
	defer cancel()
	return c.open(ctx, c.cfg)
}

// begin returns what has to be told first, oldest first, and remembers what lies behind that, so that it is not taken
// for new.
func (f *follower) begin(ctx context.Context) (past []backends.Record, err error) {
	ctx, cancel := context.WithTimeout(ctx, f.c.cfg.BackendTimeout)
	defer cancel()
	if f.began, err = f.b.Now(ctx); err != nil {
		return nil, err
	}
	f.at = bootNow()
	if f.q, err = f.c.query(ctx, f.b); err != nil {
		return nil, err
	}
	recent := f.q
	recent.Since, recent.Limit = f.since(), 0
	asked := bootNow()
	known, err := f.b.History(ctx, recent)
	if err != nil {
		return nil, err
	}
	f.answered(asked)
	if past, err = f.b.History(ctx, f.q); err != nil {
		return nil, err
	}
	for _, r := range append(known, past...) {
		f.told[fingerprint(r)] = r.EndedAt
	}
	slices.Reverse(past)
	return past, nil
}

// since is how far back something new may lie by now.
func (f *follower) since() time.Time {
	from := f.began.Add(bootNow() - f.at - lateness)
	if from.Before(f.q.Since) {
		return f.q.Since
	}
	return from
}

// run tells what is new for as long as the store can be read. It returns nil where following has to begin again, and an
// error where it is over.
func (f *follower) run(ctx context.Context) error {
	q := f.q
	q.Since, q.Limit = f.since(), 0
	var err error
	began := bootNow()
	if store, ok := backends.Historian(f.b).(backends.Follower); ok {
		err = store.Follow(ctx, q, f.emit)
	} else {
		err = f.poll(ctx, q)
	}
	var printing *printError
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &printing), backends.IsPermanent(err):
		return err
	case err != nil:
		if !f.away || bootNow()-began > 2*f.c.cfg.BackendTimeout { // after so long it is another fault
			f.c.ui.warn("the history cannot be followed, trying again: %v", err)
		}
		f.away = true
		backends.Sleep(ctx, max(time.Second, f.c.cfg.Interval))
	}
	return nil
}

// poll asks again and again, seldom enough that a large history does not keep the store busy.
func (f *follower) poll(ctx context.Context, q backends.Query) error {
	for {
		asked := bootNow()
		q.Since = f.since()
		records, err := f.ask(ctx, q)
		if err != nil {
			return err
		}
		f.answered(asked)
		for _, r := range slices.Backward(records) {
			if err := f.emit(r); err != nil {
				return err
			}
		}
		if !backends.Sleep(ctx, max(f.c.cfg.Interval, followBusy*slices.Min(f.took))) {
			return ctx.Err()
		}
	}
}

// answered takes in that the store has answered what it was asked at a moment of the boot clock.
func (f *follower) answered(asked time.Duration) {
	if f.away {
		f.away = false
		f.c.ui.notice("the store answers again")
	}
	f.took = append(f.took, bootNow()-asked)
	f.took = f.took[max(0, len(f.took)-followJudged):]
}

func (f *follower) ask(ctx context.Context, q backends.Query) ([]backends.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, f.c.cfg.BackendTimeout)
	defer cancel()
	return f.b.History(ctx, q)
}

// emit tells a record that was not told before, as it is now.
func (f *follower) emit(r backends.Record) error {
	id := fingerprint(r)
	if _, known := f.told[id]; known {
		return nil
	}
	if len(f.told) >= 1024 && len(f.told)&(len(f.told)-1) == 0 { // at each power of two
		from := f.since()
		for old, ended := range f.told {
			if ended.Before(from) {
				delete(f.told, old)
			}
		}
	}
	f.told[id] = r.EndedAt
	return f.tell(r)
}

// fingerprint is the same for what a person would take for the same news. The end is no part of it where a token tells
// runs apart: that of a crash which nobody has written yet moves with the clock.
func fingerprint(r backends.Record) string {
	exit := "-"
	if r.ExitCode != nil {
		exit = fmt.Sprint(*r.ExitCode)
	}
	if r.Token != 0 {
		return fmt.Sprintf("%d %s %s %q", r.Token, r.Outcome, exit, r.Key)
	}
	return fmt.Sprintf("%d %d %s %s %q %q %q %d", r.StartedAt.UnixMicro(), r.EndedAt.UnixMicro(), r.Outcome, exit, r.Key, r.RunID, r.Host, r.PID)
}

// printError is a stdout that does not take what has to be told.
type printError struct{ error }

// teller prints records as they come, in columns that grow where a later record needs more room than the first ones.
func (c *call) teller(p *page, first []backends.Record) func(backends.Record) error {
	flush := func() error {
		if err := p.flush(); err != nil {
			return &printError{err}
		}
		return nil
	}
	if c.cfg.JSON {
		return func(r backends.Record) error { p.json(r); return flush() }
	}
	scr := c.screen()
	t := historyTable(first)
	t.spare = []int{5, 6, 8, 9, 4, 3}
	cols := t.layout(scr.width)
	for i, least := range followWidths {
		if cols[i] != gone && scr.width == 0 {
			cols[i] = max(cols[i], least)
		}
	}
	if len(first) == 0 && scr.width > 0 {
		cols = emptyLayout(t, scr.width)
	}
	p.line(t.headText(cols, scr))
	_ = flush() // told by the first record that cannot be printed, if not by the reader's end
	return func(r backends.Record) error {
		cells := recordCells(r)
		for i := range cells {
			cells[i] = oneLine(cells[i])
			if cols[i] != gone && scr.width == 0 {
				cols[i] = max(cols[i], utf8.RuneCountInString(cells[i]))
			}
		}
		p.line(t.rowText(cells, cols, scr))
		return flush()
	}
}

// followWidths are the columns of a history that has nothing yet, as wide as most of them turn out to be.
var followWidths = [...]int{20, 16, 11, 4, 7, 7, 7, 12, 16, 10, 6}

// emptyLayout lays out a table for records that are still to come.
func emptyLayout(t *table, width int) []int {
	cells := make([]string, len(followWidths))
	for i, n := range followWidths {
		cells[i] = fmt.Sprintf("%*s", n, "")
	}
	return (&table{head: t.head, rows: [][]string{cells}, shrink: t.shrink, spare: t.spare}).layout(width)
}
