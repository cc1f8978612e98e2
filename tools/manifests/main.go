// Manifests reads Kubernetes manifests as the API server does with fieldValidation=Strict: with the API's own types, so
// that a field which is unknown, given twice, or of another type is an error. It prints each object as one line of JSON.
//
// It is a module of its own: the API's types are forty times as large as lockrun.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/util/yaml"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: manifests FILE...")
		os.Exit(64)
	}
	for _, name := range os.Args[1:] {
		if err := read(name, os.Stdout); err != nil {
			fmt.Fprintf(os.Stderr, "manifests: %s: %v\n", name, err)
			os.Exit(1)
		}
	}
}

// read decodes every document of a file.
func read(name string, out io.Writer) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), batchv1.AddToScheme(scheme)); err != nil {
		return err
	}
	strict := kjson.NewSerializerWithOptions(kjson.DefaultMetaFactory, scheme, scheme, kjson.SerializerOptions{Yaml: true, Strict: true})
	documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		document, err := documents.Read()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		object, kind, err := strict.Decode(document, nil, nil)
		if err != nil {
			return err
		}
		line, err := json.Marshal(object)
		if err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
		fmt.Fprintf(out, "%s\n", line)
	}
}
