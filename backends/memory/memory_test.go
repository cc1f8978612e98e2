package memory_test

import (
	"testing"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/backends/backendtest"
	"github.com/lockrun/lockrun/backends/memory"
)

func TestConformance(t *testing.T) {
	backendtest.Run(t, func(t *testing.T) *backendtest.Store {
		s := memory.New(time.Now, backends.Keep{})
		return &backendtest.Store{
			Open:   s.OpenWith,
			Expire: s.Expire, Remove: s.Remove, Dump: s.Dump,
			Rounds: 5,
		}
	})
}
