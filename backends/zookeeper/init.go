package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-zookeeper/zk"
)

// paths are the nodes that have to be there, parents first.
func (c *config) paths() []string {
	var all []string
	path := ""
	for _, part := range strings.Split(c.root, "/")[1:] {
		path += "/" + part
		all = append(all, path)
	}
	return append(all, c.keysPath(), c.clockPath())
}

// Init creates what is missing. Nodes that are there stay as they are, with their rights; it fails where these do not let
// us use them.
func (b *backend) Init(ctx context.Context) error {
	s, err := b.session(ctx)
	for _, path := range b.c.paths() {
		if err != nil {
			break
		}
		err = s.create(ctx, path, nil)
		if errors.Is(err, zk.ErrNoAuth) {
			// Somebody may have made it for us in a place where we may not create anything.
			if n, err2 := s.exists(ctx, path); err2 == nil && n.found {
				err = nil
			}
		}
	}
	if err == nil {
		err = b.usable(ctx, s)
	}
	if err != nil {
		return b.fail(ctx, "init", err)
	}
	return nil
}

// usable tries what every run needs: to read the list of keys, and to write the clock. Nodes that are there may be closed to
// the user of this URL, and that they are there is then no success.
func (b *backend) usable(ctx context.Context, s *session) error {
	if err := s.barrier(ctx); err != nil {
		return err
	}
	return b.confirm(ctx, s)
}

// InitPlan is what Init would do, as commands for zkCli.sh.
func (b *backend) InitPlan() string {
	var text strings.Builder
	acl := "world:anyone:cdrwa"
	if b.c.user != "" {
		fmt.Fprintf(&text, "addauth digest %s:PASSWORD\n", b.c.user)
		acl = "auth::cdrwa"
	}
	for _, path := range b.c.paths() {
		fmt.Fprintf(&text, "create %s \"\" %s\n", path, acl)
	}
	return text.String()
}
