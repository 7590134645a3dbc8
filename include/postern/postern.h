// Postern: tensor programs that reach back into the process while they run. Includes the whole
// library as it was installed; each header is the manual of its concept.
#pragma once
#include <postern/arrange.h>
#include <postern/attributes.h>
#include <postern/block.h>
#include <postern/call.h>
#include <postern/check.h>
#include <postern/cluster.h>
#include <postern/compare.h>
#include <postern/control.h>
#include <postern/conv.h>
#include <postern/devices.h>
#include <postern/dtype.h>
#include <postern/error.h>
#include <postern/file.h>
#include <postern/hook.h>
#include <postern/host.h>
#include <postern/indexing.h>
#include <postern/jit.h>
#include <postern/library.h>
#include <postern/linalg.h>
#include <postern/live.h>
#include <postern/native.h>
#include <postern/nn.h>
#include <postern/ops.h>
#include <postern/pending.h>
#include <postern/print.h>
#include <postern/products.h>
#include <postern/program.h>
#include <postern/random.h>
#include <postern/reduce.h>
#include <postern/registry.h>
#include <postern/run.h>
#include <postern/serve.h>
#include <postern/shard.h>
#include <postern/sharding.h>
#include <postern/signal.h>
#include <postern/sort.h>
#include <postern/state.h>
#include <postern/tap.h>
#include <postern/tensor.h>
#include <postern/trace.h>
#include <postern/transforms.h>
#include <postern/tree.h>
#include <postern/type.h>
#include <postern/view.h>
#if __has_include(<postern/checkpoint.h>)  // packages that may be left out
#include <postern/checkpoint.h>
#include <postern/record.h>
#endif
#if __has_include(<postern/initialize.h>)
#include <postern/initialize.h>
#endif
#if __has_include(<postern/npy.h>)
#include <postern/npy.h>
#include <postern/safetensors.h>
#endif
#if __has_include(<postern/listen.h>)
#include <postern/listen.h>
#include <postern/metrics.h>
#endif
