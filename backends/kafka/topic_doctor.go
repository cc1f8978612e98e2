package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/backends/kafka/ledger"
	"github.com/lockrun/lockrun/backends/kafka/wire"
)

// examination is one Doctor's visit.
type examination struct {
	b       *backend
	cluster wire.Cluster
	list    []backends.Check
	unfit   bool // the topic is not one for leases, so that nothing may be written into it
}

// Doctor examines brokers, topic, rights and clocks. Kafka tells its time only with an append, so it appends a record that
// is about no key to a partition of each broker, where the user has the right to write and the topic is one for
// leases.
func (b *backend) Doctor(ctx context.Context) []backends.Check {
	e := &examination{b: b}
	if !e.connection(ctx) {
		return e.list
	}
	at, brokers := len(e.list), e.brokers(ctx)
	if e.topic() { // what any broker can tell comes first: a leader that cannot be reached uses up the time, too
		e.rights()
		e.settings(ctx)
		e.replicas()
		e.partitions(ctx)
		e.records(ctx)
		e.clocks(ctx)
	}
	e.list = slices.Insert(e.list, at, brokers()...)
	return e.list
}

func (e *examination) add(check string, ok bool, cause, remedy string) {
	e.list = append(e.list, e.finding(check, ok, cause, remedy))
}

func (e *examination) finding(check string, ok bool, cause, remedy string) backends.Check {
	return backends.Check{Backend: e.b.c.name, Check: check, OK: ok, Cause: strings.Join(strings.Fields(cause), " "), Remedy: remedy}
}

// failed adds what an error says.
func (e *examination) failed(check string, err error) {
	remedy, _ := wire.Advice(err)
	e.add(check, false, err.Error(), remedy)
}

func (e *examination) connection(ctx context.Context) bool {
	var err error
	if e.cluster, err = e.b.client.Cluster(ctx, true); err != nil {
		e.failed("connection", err)
		return false
	}
	e.add("connection", true, fmt.Sprintf("cluster %s with %s", e.cluster.ID, count(len(e.cluster.Brokers), "broker")), "")
	return true
}

// brokers asks each broker, at the addresses of the URL and at those that the brokers tell of themselves. It returns what
// waits for the findings: a broker that takes connections and never answers uses up all the time there is, and the rest is
// looked at meanwhile.
func (e *examination) brokers(ctx context.Context) (findings func() []backends.Check) {
	var told []string
	for _, b := range e.cluster.Brokers {
		told = append(told, b.Addr())
	}
	all := slices.Concat(told, e.b.client.Bootstrap())
	slices.Sort(all)
	all = slices.Compact(all)
	took, errs := make([]time.Duration, len(all)), make([]error, len(all))
	var wg sync.WaitGroup
	for i, address := range all {
		wg.Go(func() { took[i], errs[i] = e.b.client.Reach(ctx, address) })
	}
	return func() (list []backends.Check) {
		wg.Wait()
		best := time.Duration(-1)
		for i, address := range all {
			switch {
			case errs[i] != nil:
				list = append(list, e.unreached(address, slices.Contains(told, address), errs[i]))
			case best < 0 || took[i] < best:
				best = took[i]
			}
		}
		if best >= 0 {
			list = append(list, e.finding("round trip", true, best.Round(10*time.Microsecond).String(), ""))
		}
		return list
	}
}

// unreached is about a broker that does not answer at an address, which the cluster tells clients or only the URL has.
func (e *examination) unreached(address string, told bool, err error) backends.Check {
	remedy, _ := wire.Advice(err)
	if told {
		remedy = "clients have to reach each broker at its advertised.listeners; " + remedy
		return e.finding("broker "+address, false, err.Error(), strings.TrimSuffix(remedy, "; "))
	}
	return e.finding("broker "+address, true, "of the URL: "+err.Error(), cmp.Or(remedy, "take it out of the URL if it is gone"))
}

// topic tells whether there is one to look at.
func (e *examination) topic() bool {
	switch t := e.cluster.Topic; {
	case t.Denied:
		e.failed("topic", wire.TopicAuthorizationFailed)
	case !t.Exists:
		e.failed("topic", wire.ErrNoTopic)
	default:
		return true
	}
	return false
}

// partitions compares the configured number with the topic's, and with the one that others use. What cannot be read is
// left to rights and records.
func (e *examination) partitions(ctx context.Context) {
	t := e.cluster.Topic
	var u *unfit
	said, err := e.b.said(ctx)
	if err == nil && said != 0 && said != e.b.c.partitions {
		err = e.b.differs(said)
	}
	found := e.b.c.partitionsWrong(t)
	switch {
	case errors.As(err, &u):
		e.report([]wrongness{{"partitions", u.cause, u.remedy, true}})
	case len(found) == 0:
		e.add("partitions", true, fmt.Sprintf("%d, as configured", len(t.Partitions)), "")
	case said == e.b.c.partitions && !found[0].fatal:
		e.add("partitions", true, found[0].cause+", as by all hosts", "")
	default:
		e.report(found)
	}
}

func (e *examination) report(found []wrongness) {
	for _, w := range found {
		e.add(w.check, !w.fatal, w.cause, w.remedy)
		e.unfit = e.unfit || w.fatal
	}
}

// rights compares what the user may do with what lockrun does.
func (e *examination) rights() {
	may := e.cluster.Topic.Operations
	var missing []string
	for _, r := range []struct {
		operation wire.Operations
		name      string
	}{{wire.Read, "Read"}, {wire.Write, "Write"}, {wire.Describe, "Describe"}} {
		if !may.Has(r.operation) {
			missing = append(missing, r.name)
		}
	}
	switch {
	case len(missing) == 1 && missing[0] == "Write":
		e.add("rights", true, "the user may look and not take leases", "give it Write on the topic if it is to run jobs")
	case len(missing) > 0:
		e.add("rights", false, "the user lacks "+strings.Join(missing, ", ")+" on the topic", "give it Read, Write, Describe and DescribeConfigs, "+docs)
	case !may.Has(wire.DescribeConfigs):
		e.add("rights", true, "Read, Write, Describe", "with DescribeConfigs on the topic its settings could be checked")
	default:
		e.add("rights", true, "Read, Write, Describe, DescribeConfigs", "")
	}
}

// settings looks at the topic's configuration.
func (e *examination) settings(ctx context.Context) {
	s, err := e.b.client.TopicConfig(ctx, append(slices.Clone(fitSettings), setInSync, setUnclean)...)
	if errors.Is(err, wire.TopicAuthorizationFailed) {
		e.add("settings", true, "they cannot be read: "+wire.TopicAuthorizationFailed.Error(), "give the user DescribeConfigs on the topic")
		return
	}
	if err != nil {
		e.failed("settings", err)
		return
	}
	found := e.b.c.settingsWrong(s)
	for _, name := range fitSettings {
		if !slices.ContainsFunc(found, func(w wrongness) bool { return w.check == name }) {
			e.add(name, true, s[name], "")
		}
	}
	e.report(found)
	e.durability(s)
}

// durability is what a failing broker can take away.
func (e *examination) durability(s map[string]string) {
	if s[setUnclean] == "true" {
		e.add(setUnclean, false, "true: a replica that lacks the last records may become the leader, and leases in them are given away",
			e.b.c.alter(setUnclean, "false"))
	} else {
		e.add(setUnclean, true, s[setUnclean], "")
	}
	least, _ := strconv.Atoi(s[setInSync])
	fewest := e.fewest(func(p wire.Partition) int { return len(p.Replicas) })
	switch {
	case fewest == 1:
		e.add("replicas", true, "1: leases are lost with that broker's disk", "with three brokers, give the topic three replicas, by kafka-reassign-partitions.sh")
	case least < 2:
		remedy := ""
		if fewest >= manyReplicas {
			remedy = e.b.c.alter(setInSync, "2")
		}
		e.add(setInSync, true, fmt.Sprintf("%d of %d replicas have to have a lease before it counts", least, fewest), remedy)
	case least >= fewest:
		e.add(setInSync, true, fmt.Sprintf("%d of %d: no lease can be taken or renewed while one broker is down", least, fewest),
			e.b.c.alter(setInSync, strconv.Itoa(fewest-1)))
	default:
		e.add(setInSync, true, fmt.Sprintf("%d of %d", least, fewest), "")
	}
	for _, p := range e.used() {
		if len(p.ISR) < least {
			e.add("in sync", false, fmt.Sprintf("partition %d has %d replicas in sync, and %d are needed to take or renew a lease", p.ID, len(p.ISR), least),
				"start the brokers that are down")
		}
	}
}

// used are the partitions that keys are in.
func (e *examination) used() []wire.Partition {
	p := e.cluster.Topic.Partitions
	return p[:min(len(p), e.b.c.partitions)]
}

func (e *examination) fewest(count func(wire.Partition) int) int {
	all := e.used()
	if len(all) == 0 {
		return 0
	}
	return count(slices.MinFunc(all, func(a, b wire.Partition) int { return count(a) - count(b) }))
}

// replicas looks at which of them are there.
func (e *examination) replicas() {
	good := true
	for _, p := range e.used() {
		if _, err := e.cluster.Leader(int(p.ID)); err != nil {
			e.add("leader", false, fmt.Sprintf("partition %d has none", p.ID), "start the brokers that have its replicas: "+ids(p.Replicas))
			good = false
		} else if len(p.ISR) < len(p.Replicas) {
			e.add("in sync", true, fmt.Sprintf("of the replicas %s of partition %d only %s are", ids(p.Replicas), p.ID, ids(p.ISR)),
				"start the brokers that are down, or look at their logs")
			good = false
		}
	}
	if good {
		e.add("in sync", true, "all replicas are", "")
	}
}

func ids(brokers []int32) string {
	words := make([]string, len(brokers))
	for i, b := range brokers {
		words[i] = strconv.Itoa(int(b))
	}
	return strings.Join(words, ", ")
}

// Clocks that differ by more than hostAdvice confuse people who compare logs; leases do not depend on the host's. Those of
// brokers matter at a change of the leader alone, where a lease may then seem to last longer than it does.
const (
	hostAdvice   = 2 * time.Second
	brokerAdvice = time.Second
)

// clocks compares the brokers' clocks with each other and with the host's.
func (e *examination) clocks(ctx context.Context) {
	if !e.cluster.Topic.Operations.Has(wire.Write) {
		e.add("clock", true, "not compared: only an append tells a broker's time, and the user has no right to write", "")
		return
	}
	if e.unfit {
		e.add("clock", true, "not compared: only an append tells a broker's time, and nothing is written into a topic that is not right", "")
		return
	}
	seen := map[string]bool{}
	offsets := map[string]time.Duration{}
	for _, p := range e.used() {
		leader, err := e.cluster.Leader(int(p.ID))
		if err != nil || seen[leader.Addr()] {
			continue
		}
		seen[leader.Addr()] = true
		offset, err := e.b.clockOffset(ctx, int(p.ID))
		if errors.Is(err, errNoTime) {
			e.add("clock", false, "not compared: "+err.Error(), e.b.c.alter(setTimestamps, "LogAppendTime"))
			return
		}
		if err != nil {
			e.failed("append", err)
			continue
		}
		offsets[leader.Addr()] = offset
	}
	e.compare(offsets)
}

// clockOffset is how far a partition's leader is ahead of this host, to within the time that the append took.
func (b *backend) clockOffset(ctx context.Context, partition int) (time.Duration, error) {
	sent := time.Now()
	at, err := b.logs[partition].mark(ctx, &ledger.Entry{Kind: ledger.Clock})
	if err != nil {
		return 0, err
	}
	return at.Time.Sub(sent.Add(time.Since(sent) / 2)), nil
}

func (e *examination) compare(offsets map[string]time.Duration) {
	var low, high time.Duration
	first := true
	for broker, o := range offsets {
		if first || o < low {
			low = o
		}
		if first || o > high {
			high = o
		}
		first = false
		remedy := ""
		if o.Abs() > hostAdvice {
			remedy = "leases depend on the brokers' clocks alone, but times in listings and --schedule are theirs: let NTP set all clocks"
		}
		e.add("clock", true, fmt.Sprintf("broker %s is %v against this host's", broker, o.Round(time.Millisecond)), remedy)
	}
	if spread := high - low; len(offsets) > 1 && spread > brokerAdvice {
		e.add("clocks", true, fmt.Sprintf("the brokers' are up to %v apart", spread.Round(time.Millisecond)),
			"let NTP set them: when the leader changes, a lease is counted anew by the new one's clock, and until then hosts may be told of times that did not happen")
	}
}

// recentBytes is how much of the end of each partition is looked through for records that are not lockrun's.
const recentBytes = 1 << 20

// records counts what has no business in the topic.
func (e *examination) records(ctx context.Context) {
	total, foreign, damaged, newer, untimed := 0, 0, 0, 0, 0
	for _, p := range e.used() {
		recent, err := e.b.recent(ctx, int(p.ID))
		if err != nil {
			e.failed("records", err)
			return
		}
		for _, r := range recent {
			total++
			_, err := ledger.Decode(ledger.Record{Offset: r.Offset, Time: r.Time.UnixMilli(), Epoch: r.Epoch, Key: r.Key, Value: r.Value})
			switch {
			case r.Control, errors.Is(err, ledger.ErrForeign):
				foreign++
			case !r.Appended:
				untimed++
			case errors.Is(err, ledger.ErrNewer):
				newer++
			case err != nil:
				damaged++
			}
		}
	}
	e.unfit = e.unfit || newer > 0 || untimed > 0 || total > 0 && foreign == total
	switch {
	case newer > 0:
		e.add("records", false, fmt.Sprintf("%d of the last %d records were written by a newer lockrun", newer, total), "update lockrun on this host")
	case untimed > 0:
		e.add("records", false, fmt.Sprintf("%d of the last %d records have no time of the broker's", untimed, total), e.b.c.alter(setTimestamps, "LogAppendTime"))
	case foreign+damaged > 0:
		e.add("records", true, fmt.Sprintf("of the last %d records %d are not lockrun's and %d damaged; they are ignored", total, foreign, damaged),
			"find out who else writes into this topic, and give lockrun one of its own")
	default:
		e.add("records", true, fmt.Sprintf("the last %d are all lockrun's", total), "")
	}
}

// recent reads the last few hundred records of a partition.
func (b *backend) recent(ctx context.Context, partition int) ([]wire.Record, error) {
	start, end, err := b.client.Offsets(ctx, partition)
	if err != nil {
		return nil, err
	}
	from := max(start, end-500)
	var all []wire.Record
	for from < end {
		got, err := b.client.Fetch(ctx, partition, from, 0, recentBytes)
		if err != nil {
			return nil, err
		}
		if got.Next <= from {
			break
		}
		all = append(all, got.Records...)
		from = got.Next
	}
	return all, nil
}
