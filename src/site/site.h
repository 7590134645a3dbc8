// The one primitive behind call, tap, hook and print.
#pragma once
#include "core/primitive.h"
#include "core/site_spec.h"

namespace postern::internal {

extern const Primitive site_p;

/// Records (or runs) a site. A call's results are what the site declares, a tap's its operands.
Tensors at_site(SiteSpec site, TensorSpan operands);

/// Returns a call's site; throws TypeError where one of its options is out of range.
SiteSpec call_site(const CallOptions& options, const Types& out, const std::string& structure,
                   const std::vector<std::string>& paths, const Callee& fn, TensorSpan operands);

/// Checks that there is the device that a call asks for, if it asks for one. Throws TypeError.
void check_device(const CallOptions& options);

// Gives the rules of site_p: site_derivatives.cc.
std::pair<Tensors, Tensors> site_jvp(const Op& op, TensorSpan x, TensorSpan dx);
Primitive::SplitResult site_split(const Op& op, TensorSpan x, const std::vector<bool>& wanted);
Tensors site_transpose(const Op& op, TensorSpan ct, TensorSpan x, TypeSpan types);

}  // namespace postern::internal
