package kafka

import (
	"context"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/backends/kafka/ledger"
)

// ask appends a LOCK, again where so many others with run ids came in between that what it says of its own is out of date.
// check is as for do.
func (l *log) ask(ctx context.Context, r backends.Request, check func(*ledger.State) error) (answer, error) {
	for {
		a, err := l.do(ctx, lockEntry(r), check)
		if err != nil || a.res == nil || a.res.Did != ledger.Stale {
			return a, err
		}
	}
}
