// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/exporter/exportertest"
	"go.opentelemetry.io/collector/service/hostcapabilities"
)

// nopFactoryHost is the host of the generated lifecycle tests. The wrapped
// exporter is built at Start by a factory of the host, and the host that
// mdatagen generates has none.
type nopFactoryHost struct {
	component.Host
	factory component.Factory
}

var _ hostcapabilities.ComponentFactory = (*nopFactoryHost)(nil)

func newNopFactoryHost() component.Host {
	return &nopFactoryHost{Host: componenttest.NewNopHost(), factory: exportertest.NewNopFactory()}
}

func (h *nopFactoryHost) GetFactory(kind component.Kind, typ component.Type) component.Factory {
	if kind == component.KindExporter && typ == h.factory.Type() {
		return h.factory
	}
	return nil
}
