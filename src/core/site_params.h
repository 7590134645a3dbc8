// The parameters of an equation that is a site.
#pragma once
#include "core/params.h"
#include "core/site.h"

namespace postern {

/// For a place of its own in a program: each counts and listens for itself, also when a
/// transformation copies it.
ParamsPtr params_of_own(SiteSpec site);

}  // namespace postern
