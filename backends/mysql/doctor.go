package mysql

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// examination is one Doctor's visit over one connection.
type examination struct {
	b    *backend
	p    *pool
	list []backends.Check
}

// Doctor examines the server, its settings as far as leases depend on them, the tables and the user's rights. It writes
// nothing: rights are tried on statements that match no row.
func (b *backend) Doctor(ctx context.Context) []backends.Check {
	e := &examination{b: b, p: b.unchecked()}
	defer e.p.Close()
	if !e.roundTrip(ctx) {
		return e.list
	}
	e.settings(ctx)
	e.galera(ctx)
	if e.tables(ctx) {
		e.rights(ctx)
	}
	return e.list
}

func (e *examination) add(check string, ok bool, cause, remedy string) {
	e.list = append(e.list, backends.Check{Backend: e.b.name, Check: check, OK: ok, Cause: cause, Remedy: remedy})
}

// failed adds what an error says.
func (e *examination) failed(check string, err error) {
	f, ok := err.(*backends.Error)
	if !ok {
		e.add(check, false, err.Error(), "")
		return
	}
	e.add(check, false, f.Err.Error(), f.Remedy)
}

func (e *examination) ask(ctx context.Context, sql string) (sets, error) {
	var got sets
	err := e.p.do(ctx, "examine", repeatable, func(ctx context.Context, c *conn) error {
		var err error
		got, err = c.query(ctx, sql)
		return err
	})
	return got, err
}

// Clocks that differ by more than offsetAdvice confuse people who compare logs; leases do not depend on the host's.
const offsetAdvice = 2 * time.Second

// roundTrip is the best of three, and what the server's clock reads in the middle of it.
func (e *examination) roundTrip(ctx context.Context) bool {
	best, offset := time.Duration(-1), time.Duration(0)
	for range 3 {
		if _, err := e.ask(ctx, "DO 0"); err != nil { // the first also connects
			e.failed("connection", err)
			return false
		}
		sent := time.Now()
		got, err := e.ask(ctx, "SELECT UTC_TIMESTAMP(6)")
		took := time.Since(sent)
		if err != nil {
			e.failed("connection", err)
			return false
		}
		at, err := got.only().time(0)
		if err != nil {
			e.failed("clock", err)
			return false
		}
		if best < 0 || took < best {
			best, offset = took, at.Sub(sent.Add(took/2))
		}
	}
	e.add("round trip", true, best.Round(10*time.Microsecond).String(), "")
	remedy := ""
	if offset.Abs() > offsetAdvice {
		remedy = "leases depend on the server's clock alone, but times in listings and --schedule are the server's: let NTP set both clocks"
	}
	e.add("clock", true, fmt.Sprintf("the server's is %v against this host's", offset.Round(time.Millisecond)), remedy)
	return true
}

// settings looks at server variables. Those that some version does not have are asked for by pattern.
func (e *examination) settings(ctx context.Context) {
	got, err := e.ask(ctx, `SHOW VARIABLES WHERE Variable_name IN ('version', 'version_comment', 'read_only', 'super_read_only',
'innodb_read_only', 'wait_timeout', 'transaction_isolation', 'tx_isolation', 'binlog_format', 'log_bin',
'innodb_flush_log_at_trx_commit', 'rpl_semi_sync_master_enabled', 'rpl_semi_sync_source_enabled')`)
	if err != nil {
		e.failed("settings", err)
		return
	}
	v := variables(got)
	e.version(v["version"], v["version_comment"])
	e.readOnly(v)
	e.add("wait_timeout", true, v["wait_timeout"]+" s; a connection that the server cuts meanwhile is dialled again", "")
	e.add("isolation", true, v["transaction_isolation"]+" in a session of lockrun, whatever the server's default", "")
	if strings.EqualFold(v["log_bin"], "ON") && strings.EqualFold(v["binlog_format"], "STATEMENT") {
		e.add("binlog_format", false, "STATEMENT, which cannot replicate transactions at READ COMMITTED", "set binlog_format to ROW or MIXED")
	}
	e.durability(v)
	e.replication(v)
	e.add("time zone", true, "UTC in a session of lockrun; time zone tables are not needed", "")
}

func variables(got sets) map[string]string {
	v := map[string]string{}
	if len(got) > 0 {
		for _, r := range got[0].rows {
			v[strings.ToLower(r.str(0))] = r.str(1)
		}
	}
	if v["transaction_isolation"] == "" {
		v["transaction_isolation"] = v["tx_isolation"]
	}
	return v
}

func (e *examination) version(version, comment string) {
	var major, minor int
	fmt.Sscanf(version, "%d.%d", &major, &minor)
	least := "MySQL 5.7"
	old := major < 5 || major == 5 && minor < 7
	if strings.Contains(strings.ToLower(version+comment), "mariadb") {
		least, old = "MariaDB 10.5", major < 10 || major == 10 && minor < 5
	}
	if old {
		e.add("version", false, version, "use "+least+" or later")
		return
	}
	e.add("version", true, version, "")
}

func (e *examination) readOnly(v map[string]string) {
	var on []string
	for _, name := range []string{"read_only", "super_read_only", "innodb_read_only"} {
		if strings.EqualFold(v[name], "ON") {
			on = append(on, name)
		}
	}
	if len(on) > 0 {
		e.add("read_only", false, strings.Join(on, ", ")+" is ON", "make the URL lead to the primary, or end "+on[0]+" there")
		return
	}
	e.add("read_only", true, "OFF", "")
}

// durability tells what a crash of the server may forget.
func (e *examination) durability(v map[string]string) {
	cause := "innodb_flush_log_at_trx_commit = " + v["innodb_flush_log_at_trx_commit"]
	remedy := ""
	if v["innodb_flush_log_at_trx_commit"] != "1" {
		remedy = "a power cut can make the server forget a lease that it has granted: set innodb_flush_log_at_trx_commit to 1"
	}
	e.add("durability", true, cause, remedy)
}

// replication tells what a failover to a replica may forget. Whether there are replicas takes more rights to find out.
func (e *examination) replication(v map[string]string) {
	switch {
	case !strings.EqualFold(v["log_bin"], "ON"):
		e.add("replication", true, "none: there is no binary log", "")
	case strings.EqualFold(v["rpl_semi_sync_master_enabled"], "ON") || strings.EqualFold(v["rpl_semi_sync_source_enabled"], "ON"):
		e.add("replication", true, "semi-synchronous", "")
	default:
		e.add("replication", true, "asynchronous, if there are replicas",
			"a failover can forget a lease that was granted a moment before: switch on semi-synchronous replication, or keep runs in another store by --record")
	}
}

// galera looks at the cluster, where the server is a node of one.
func (e *examination) galera(ctx context.Context) {
	got, err := e.ask(ctx, "SHOW GLOBAL STATUS LIKE 'wsrep\\_%'")
	if err != nil {
		e.failed("galera", err)
		return
	}
	v := variables(got)
	if v["wsrep_cluster_status"] == "" || v["wsrep_cluster_status"] == "Disconnected" {
		return
	}
	cause := fmt.Sprintf("node is %s, cluster of %s is %s", v["wsrep_local_state_comment"], v["wsrep_cluster_size"], v["wsrep_cluster_status"])
	switch {
	case v["wsrep_ready"] != "ON" || v["wsrep_cluster_status"] != "Primary":
		e.add("galera", false, cause, "bring back the nodes that are missing, until the cluster is Primary")
	default:
		e.add("galera", true, cause, "expiry is judged by the clock of the node that is asked: let NTP keep the nodes' clocks together")
	}
}

// tables looks at schema, column types and storage engine.
func (e *examination) tables(ctx context.Context) bool {
	err := e.p.do(ctx, "examine", repeatable, func(ctx context.Context, c *conn) error {
		return e.b.t.examine(ctx, c, e.p.setup)
	})
	if err != nil {
		e.failed("schema", err)
		return false
	}
	e.add("schema", true, fmt.Sprintf("version %d", schemaVersion), "")
	got, err := e.ask(ctx, "SELECT TABLE_NAME, ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME IN ("+
		strings.NewReplacer("`", "'").Replace(strings.Join(e.b.t.all(), ", "))+") AND ENGINE <> 'InnoDB'")
	if err != nil {
		e.failed("engine", err)
		return false
	}
	if r := got.only(); r != nil {
		e.add("engine", false, r.str(0)+" is kept by "+r.str(1)+", which has no transactions", "ALTER TABLE "+r.str(0)+" ENGINE=InnoDB")
		return false
	}
	e.add("engine", true, "InnoDB", "")
	return true
}

// all are the tables in the order in which they are created.
func (t tables) all() []string {
	return []string{t.leases, t.keys, t.runs, t.history, t.waiters, t.schema}
}

// rights tries each kind of statement on no row.
func (e *examination) rights(ctx context.Context) {
	var missing []string
	for _, table := range e.b.t.all()[:5] {
		for _, right := range []struct{ name, sql string }{
			{"INSERT", "INSERT INTO " + table + " SELECT * FROM " + table + " WHERE 1 = 0"},
			{"UPDATE", "UPDATE " + table + " SET job_name = job_name WHERE 1 = 0"},
			{"DELETE", "DELETE FROM " + table + " WHERE 1 = 0"},
		} {
			if _, err := e.ask(ctx, right.sql); mysqlCode(err) == 1142 {
				missing = append(missing, right.name+" on "+table)
			} else if err != nil && mysqlCode(err) != 1290 { // read_only has a check of its own
				e.failed("rights", err)
				return
			}
		}
	}
	if len(missing) > 0 {
		e.add("rights", false, "missing: "+strings.Join(missing, ", "), grantRemedy+" (asking commands need only SELECT)")
		return
	}
	e.add("rights", true, "SELECT, INSERT, UPDATE, DELETE", "")
}
