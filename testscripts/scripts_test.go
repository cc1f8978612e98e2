package testscripts

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestScripts runs each file of scripts/. Beside the standard commands they may use:
//
//	exits CODE[,CODE...] CMD...   CMD must end with one of these codes
//	codes FROM TO CMD...          CMD, with {} replaced by each number from FROM to TO, must end with that number
//	spawn NAME CMD...             starts CMD in a session of its own; output goes to NAME.out and NAME.err, $NAME_pid is set
//	ended NAME CODE               waits for it, and checks its code (128+N for a signal)
//	[!] running NAME              it has not (has) ended
//	guarded NAME                  waits until lockrun, spawned as NAME, has its guard beside its command
//	signal NAME|PID|FILE SIG      sends a signal to it, or to the process whose pid is in FILE
//	many N CODE=COUNT... -- CMD   starts CMD, with {} replaced by 1 to N, N times at one instant, and counts the codes
//	until D CMD...                repeats CMD until it ends with 0
//	waitfor FILE [REGEXP]         waits until FILE is there, and matches
//	[!] dead PID|FILE [D]         the process is gone, or a zombie, within D; negated: it is alive
//	stamp NAME                    remembers this moment
//	elapsed NAME MIN MAX          so much time has passed since then
//	json FILE|stdout FIELD=VALUE  of the first line; VALUE may be null, * (anything but null) or >N
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "scripts",
		Setup:               setup,
		Condition:           condition,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": cmdExits, "codes": cmdCodes, "many": cmdMany, "until": cmdUntil,
			"spawn": cmdSpawn, "ended": cmdEnded, "running": cmdRunning, "signal": cmdSignal, "dead": cmdDead,
			"guarded": cmdGuarded, "waitfor": cmdWaitfor, "stamp": cmdStamp, "elapsed": cmdElapsed, "json": cmdJSON,
		},
	})
}

// setup gives each script a store, a home and nothing of the caller's lockrun.
func setup(env *testscript.Env) error {
	db := filepath.Join(env.WorkDir, "store.db")
	home := filepath.Join(env.WorkDir, "home")
	if err := os.Mkdir(home, 0o755); err != nil {
		return err
	}
	env.Vars = append(env.Vars,
		"PATH="+binDir+":"+os.Getenv("PATH")+":/usr/sbin",
		"HOME="+home,
		"XDG_CONFIG_HOME="+filepath.Join(home, "config"),
		"XDG_STATE_HOME="+filepath.Join(home, "state"),
		"DB="+db,
		"LOCKRUN_BACKEND=sqlite://"+db,
		"PROBE="+filepath.Join(env.WorkDir, "probe"),
		"LANG=C.UTF-8",
		"GORACE=atexit_sleep_ms=0", // else each process of the race detector's build takes a second to end
	)
	env.Values[procsKey{}] = map[string]*proc{}
	env.Values[stampsKey{}] = stamps{}
	return nil
}
