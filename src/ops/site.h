// The one primitive behind call, tap, hook and print.
#pragma once
#include "core/primitive.h"
#include "core/site.h"

namespace postern {

extern const Primitive site_p;

/// Records (or runs) a site. A call's results are what the site declares, a tap's its operands.
Tensors at_site(SiteSpec site, std::span<const Tensor> operands);


}  // namespace postern
