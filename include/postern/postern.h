// Postern: tensor programs that reach back into the process while they run. Includes the whole library; each header is the manual of its
// concept.
#pragma once
#include <postern/attributes.h>
#include <postern/call.h>
#include <postern/devices.h>
#include <postern/dtype.h>
#include <postern/error.h>
#include <postern/host.h>
#include <postern/jit.h>
#include <postern/ops.h>
#include <postern/program.h>
#include <postern/registry.h>
#include <postern/run.h>
#include <postern/tensor.h>
#include <postern/tree.h>
#include <postern/type.h>
#include <postern/view.h>
