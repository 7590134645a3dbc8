// The collectives' primitives and what they are given, for who rewrites them.
#pragma once
#include "core/primitive.h"
#include "shard/named_axes.h"

namespace postern {

extern const Primitive psum_p, pmax_p, pmin_p, all_gather_p, reduce_scatter_p, all_to_all_p,
    ppermute_p;

}  // namespace postern
