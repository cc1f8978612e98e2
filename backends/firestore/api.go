package firestore

import (
	"context"
	"time"
)

// document is a document as it is sent and received.
type document struct {
	Name    string `json:"name"`
	Fields  fields `json:"fields,omitempty"`
	Created string `json:"createTime,omitempty"`
	Updated string `json:"updateTime,omitempty"`
}

// write is one write of a commit. All of a commit are carried out, or none is.
type write struct {
	Update     *document     `json:"update,omitempty"`
	Delete     string        `json:"delete,omitempty"`
	Mask       *mask         `json:"updateMask,omitempty"` // nil: the document is replaced as a whole
	Transforms []transform   `json:"updateTransforms,omitempty"`
	Current    *precondition `json:"currentDocument,omitempty"`
}

type mask struct {
	Paths []string `json:"fieldPaths"`
}

// transform changes a field by what only the server knows, and answers with what the field is then.
type transform struct {
	Path      string `json:"fieldPath"`
	Server    string `json:"setToServerValue,omitempty"`
	Increment *value `json:"increment,omitempty"`
	Maximum   *value `json:"maximum,omitempty"`
}

type precondition struct {
	Exists  *bool  `json:"exists,omitempty"`
	Updated string `json:"updateTime,omitempty"`
}

// version is what a document has to be like for a write: absent (""), or as it was at that update.
func version(updated string) *precondition {
	if updated == "" {
		no := false
		return &precondition{Exists: &no}
	}
	return &precondition{Updated: updated}
}

func exists() *precondition { yes := true; return &precondition{Exists: &yes} }

func add(path string, n int64) transform { v := num(n); return transform{Path: path, Increment: &v} }

// atLeast raises a number, and tells what it is. With 0 it only tells.
func atLeast(path string, n int64) transform { v := num(n); return transform{Path: path, Maximum: &v} }

// stamp sets a field to the server's time, in milliseconds.
func stamp(path string) transform { return transform{Path: path, Server: "REQUEST_TIME"} }

// committed is the answer to a commit.
type committed struct {
	Time    string `json:"commitTime"`
	Results []struct {
		Updated    string  `json:"updateTime"`
		Transforms []value `json:"transformResults"`
	} `json:"writeResults"`
}

// updated is the version of what the write numbered i wrote. A write that changed nothing has none of its own.
func (c *committed) updated(i int) string {
	if i < len(c.Results) && c.Results[i].Updated != "" {
		return c.Results[i].Updated
	}
	return c.Time
}

// number is the result of a transform.
func (c *committed) number(write, transform int) int64 {
	if write < len(c.Results) && transform < len(c.Results[write].Transforms) {
		return c.Results[write].Transforms[transform].num()
	}
	return 0
}

func (c *committed) at() time.Time { return parseTime(c.Time) }

// commit carries writes out. Every commit of lockrun holds a condition that it makes false itself, so that sending it
// twice does not carry it out twice: after a lost reply the second one is refused, which isConflict tells.
func (c *client) commit(ctx context.Context, writes []write) (*committed, error) {
	var answer committed
	err := c.call(ctx, c.root+":commit", map[string]any{"writes": writes}, &answer)
	return &answer, err
}

// read gives the documents that are there, by name, as they were at one moment of the server's clock.
func (c *client) read(ctx context.Context, list ...string) (map[string]*document, time.Time, error) {
	var answer []struct {
		Found *document `json:"found"`
		Read  string    `json:"readTime"`
	}
	err := c.call(ctx, c.root+":batchGet", map[string]any{"documents": list}, &answer)
	if err != nil {
		return nil, time.Time{}, err
	}
	found, now := make(map[string]*document, len(answer)), time.Time{}
	for _, a := range answer {
		if a.Found != nil {
			found[a.Found.Name] = a.Found
		}
		if t := parseTime(a.Read); t.After(now) {
			now = t
		}
	}
	if now.IsZero() {
		return nil, now, errNoTime
	}
	return found, now, nil
}

// query is what runQuery is asked. None needs an index beyond those that Firestore makes by itself.
type query struct {
	Select *projection `json:"select,omitempty"`
	From   []from      `json:"from"`
	Where  *filter     `json:"where,omitempty"`
	Order  []order     `json:"orderBy,omitempty"`
	Start  *cursor     `json:"startAt,omitempty"`
	Limit  int         `json:"limit,omitempty"`
}

type projection struct {
	Fields []field `json:"fields"`
}

type from struct {
	Collection string `json:"collectionId"`
}

type filter struct {
	Field struct {
		Field field  `json:"field"`
		Op    string `json:"op"`
		Value value  `json:"value"`
	} `json:"fieldFilter"`
}

type field struct {
	Path string `json:"fieldPath"`
}

type order struct {
	Field     field  `json:"field"`
	Direction string `json:"direction"`
}

type cursor struct {
	Values []value `json:"values"`
}

func where(path, op string, v value) *filter {
	var f filter
	f.Field.Field.Path, f.Field.Op, f.Field.Value = path, op, v
	return &f
}

// only asks for the names of documents, and these fields of them.
func only(paths ...string) *projection {
	p := &projection{Fields: []field{{"__name__"}}}
	for _, path := range paths {
		p.Fields = append(p.Fields, field{path})
	}
	return p
}

// find runs a query below a document, or below the root where parent is "".
func (c *client) find(ctx context.Context, parent string, q query) ([]*document, time.Time, error) {
	if parent == "" {
		parent = c.names.root
	}
	var answer []struct {
		Document *document `json:"document"`
		Read     string    `json:"readTime"`
	}
	err := c.call(ctx, parent+":runQuery", map[string]any{"structuredQuery": q}, &answer)
	var all []*document
	var now time.Time
	for _, a := range answer {
		if a.Document != nil {
			all = append(all, a.Document)
		}
		if t := parseTime(a.Read); t.After(now) {
			now = t
		}
	}
	if err == nil && now.IsZero() {
		err = errNoTime
	}
	return all, now, err
}

// count tells how many documents a collection below a document has. It costs a read for each thousand.
func (c *client) count(ctx context.Context, parent, collection string) (int, error) {
	q := map[string]any{"structuredAggregationQuery": map[string]any{
		"structuredQuery": query{From: []from{{collection}}},
		"aggregations":    []any{map[string]any{"alias": "n", "count": map[string]any{}}},
	}}
	var answer []struct {
		Result struct {
			Fields fields `json:"aggregateFields"`
		} `json:"result"`
	}
	if err := c.call(ctx, parent+":runAggregationQuery", q, &answer); err != nil || len(answer) == 0 {
		return 0, err
	}
	return int(answer[0].Result.Fields.num("n")), nil
}
