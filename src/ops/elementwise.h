// Elementwise helpers that other families build on.
#pragma once
#include "core/primitive.h"

namespace postern::internal {

/// Converts integers and pred to f32; floats and complex stay.
Tensor as_float(const Tensor& x);

/// Lowers it; these are more than one operation of StableHLO's.
void pow_lower(Lowering& out, const Equation& e);
void maximum_lower(Lowering& out, const Equation& e);
void minimum_lower(Lowering& out, const Equation& e);
void sine_lower(Lowering& out, const Equation& e);
void cosine_lower(Lowering& out, const Equation& e);
void square_lower(Lowering& out, const Equation& e);

/// Compute it in host memory (`Primitive::on_host`).
bool add_on_host(const Params* params, const HostArrays& arrays);
bool subtract_on_host(const Params* params, const HostArrays& arrays);
bool negative_on_host(const Params* params, const HostArrays& arrays);
bool multiply_on_host(const Params* params, const HostArrays& arrays);
bool divide_on_host(const Params* params, const HostArrays& arrays);
bool maximum_on_host(const Params* params, const HostArrays& arrays);
bool minimum_on_host(const Params* params, const HostArrays& arrays);
bool and_on_host(const Params* params, const HostArrays& arrays);
bool or_on_host(const Params* params, const HostArrays& arrays);
bool xor_on_host(const Params* params, const HostArrays& arrays);
bool not_on_host(const Params* params, const HostArrays& arrays);
bool shift_left_on_host(const Params* params, const HostArrays& arrays);
bool shift_right_on_host(const Params* params, const HostArrays& arrays);
bool shift_right_logical_on_host(const Params* params, const HostArrays& arrays);
bool select_on_host(const Params* params, const HostArrays& arrays);
bool bitcast_on_host(const Params* params, const HostArrays& arrays);
/// Computes a comparison that gives these for x == y, x < y and x > y.
bool order_on_host(const HostArrays& arrays, int equal, int less, int greater);

}  // namespace postern::internal
