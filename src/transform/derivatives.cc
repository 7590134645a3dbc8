// jvp, vjp, linearize, grad and the Jacobians on leaves.
#include <postern/ops.h>
#include <postern/transforms.h>

#include "core/check.h"
#include "transform/axis.h"
#include "transform/batch.h"
#include "transform/jvp.h"
#include "transform/linearize.h"
#include "transform/walk.h"

namespace postern::detail {
using namespace internal;

namespace {

void require_values(const char* what, const Tensors& x) {
  for (const Tensor& t : x)
    check(t.has_value(), "{}: an argument is an empty Tensor, one that was never given a value",
          what);
}

/// Returns `given` as tangents or cotangents of values of these types: checked, and empty where
/// there can be none.
Tensors fitting(const char* what, const char* kind, const Types& types, const Tensors& given) {
  check(given.size() == types.size(), "{}: {} {}s for {} leaves", what, given.size(), kind,
        types.size());
  Tensors out(types.size());
  for (std::size_t i = 0; i < types.size(); ++i) {
    if (!is_differentiable(types[i].dtype) || !given[i].has_value()) continue;
    check(alike(given[i].type(), types[i]), "{}: {} {} must be {} as its value, got {}", what, kind,
          i, to_string(types[i]), to_string(given[i].type()));
    out[i] = given[i];
  }
  return out;
}

/// Refuses active leaves by which nothing is differentiated so. `real`: complex ones too, unless
/// the function is holomorphic.
void require_inputs(const char* what, const Tensors& x, const std::vector<bool>& active,
                    const GradOptions& options, bool real) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (!active[i]) continue;
    const Type& type = x[i].type();
    check(is_differentiable(type.dtype) || options.allow_int,
          "{}: leaf {} of what is differentiated by is {}; a derivative needs float or complex (or "
          "GradOptions::allow_int)",
          what, i, to_string(type));
    check(!options.holomorphic || is_complex(type.dtype),
          "{}: holomorphic functions take complex arguments, got {}", what, to_string(type));
    check(!real || options.holomorphic || !is_complex(type.dtype),
          "{}: leaf {} is {}; for complex arguments set GradOptions::holomorphic, or differentiate "
          "by real and imaginary parts",
          what, i, to_string(type));
  }
}

}  // namespace

Values jvp(const TensorFunction& f, const Tensors& x, const Tensors& dx, const Place& place) {
  PlaceScope at(place);
  require_values("jvp", x);
  const Types types = types_of(x);
  const Tensors tangents = fitting("jvp", "tangent", types, dx);
  const Closed closed = trace_user("jvp", types, f);
  const Tensors no_tangents(closed.captures.size());
  auto [y, dy] =
      jvp_of(*closed.program, joined({x, closed.captures}), joined({tangents, no_tangents}));
  return {y, filled(std::move(dy), types_of(y))};
}

std::shared_ptr<const LinearMap> linearize(const char* what, const TensorFunction& f,
                                           const Tensors& x) {
  require_values(what, x);
  const Closed closed = trace_user(what, types_of(x), f);
  return std::make_shared<const LinearMap>(
      LinearMap{what, linearized(closed, x, std::vector<bool>(x.size(), true),
                                 std::vector<bool>(closed.program->outputs.size(), true))});
}
const Tensors& results_of(const LinearMap& map) { return map.of.results; }

Tensors push(const LinearMap& map, const Tensors& tangents) {
  return filled(map.of.push(fitting(map.what, "tangent", map.of.input_types, tangents)),
                types_of(map.of.results));
}
Tensors pull(const LinearMap& map, const Tensors& cotangents) {
  return filled(map.of.pull(fitting(map.what, "cotangent", types_of(map.of.results), cotangents)),
                map.of.input_types);
}

Values value_and_grad(const char* what, const TensorFunction& f, const Tensors& x,
                      const std::vector<bool>& active, bool aux, const GradOptions& options,
                      const Place& place) {
  PlaceScope at(place);
  require_values(what, x);
  require_inputs(what, x, active, options, false);
  const Closed closed = trace_user(what, types_of(x), f);
  const Types types = closed.program->output_types();
  const Type& type = types[0];
  check(type.dims.empty(),
        "{}: the function must return a scalar, it returns {}; use jacrev, or vjp with a cotangent",
        what, to_string(type));
  const bool is_complex_result = is_complex(type.dtype);
  check(!options.holomorphic || is_complex_result,
        "{}: the function must return a complex scalar, it returns {}", what, to_string(type));
  check(options.holomorphic || !is_complex_result,
        "{}: the function must return a real float scalar, it returns {}; for a holomorphic "
        "function set GradOptions::holomorphic",
        what, to_string(type));
  check(is_complex_result || is_float(type.dtype),
        "{}: the function must return a real float scalar, it returns {}", what, to_string(type));
  std::vector<bool> wanted(types.size(), !aux);
  wanted[0] = true;
  const Linearized linear = linearized(closed, x, active, wanted);
  Tensors ct(types.size());
  ct[0] = ones({type.dtype, type.dims});  // no weak ones
  Tensors gradients = filled(linear.pull(ct), types_of(x), active);
  return {linear.results, std::move(gradients)};
}

namespace {

/// Returns the identity as a batch of arrays of that type: of f32[2,3] it is f32[6,2,3].
Tensor basis(const Type& type) {
  Dims dims = type.dims;
  dims.insert(dims.begin(), type.size());
  return reshape(eye(type.dtype, type.size(), type.size()), dims);
}

/// Applies `map`, of one array of that type, to each row of `rows`. The results have the rows' axis
/// in front.
Tensors each_row(const TensorFunction& map, const Type& type, const Tensor& rows) {
  const Closed closed = trace_program("jacobian", std::vector<Type>{{type.dtype, type.dims}}, map);
  const BatchScope unnamed(nullptr);
  auto [out, out_axes] = batch_of(closed, list_of(rows), {0}, type.size());
  move_to_front(out, out_axes, type.size());
  return std::move(out);
}

Tensor with_dims(const Tensor& rows, const Dims& first, const Dims& second) {
  Dims dims = first;
  dims.insert(dims.end(), second.begin(), second.end());
  return reshape(rows, dims);
}

/// Computes the blocks by (result, active input), each with the result's axes and then the input's:
/// a push of the basis gives those of one input, with the input's axes, flat, in front.
Tensors forward_jacobian(const Linearized& linear, const std::vector<bool>& active) {
  const Types results = types_of(linear.results);
  const std::size_t columns = count(active);
  Tensors out(results.size() * columns);
  std::size_t column = 0;
  for (std::size_t i = 0; i < active.size(); ++i) {
    if (!active[i]) continue;
    const Type& type = linear.input_types[i];
    Tensors rows(results.size());  // by result; empty for an input that does not move
    if (linear.inputs_move[i])
      rows = each_row(
          [&](TensorSpan direction) {
            Tensors dx(active.size());
            dx[i] = direction[0];
            return filled(linear.push(dx), results);
          },
          type, basis(type));
    for (std::size_t r = 0; r < results.size(); ++r) {
      Tensor flat;  // the result's axes, then the input's as one
      if (rows[r].has_value())
        flat = move_batch(rows[r], 0, static_cast<int>(rows[r].rank()) - 1, type.size());
      else
        flat = zeros_of({DType::pred, {results[r].size() * type.size()}});
      out[r * columns + column] = with_dims(flat, results[r].dims, type.dims);
    }
    ++column;
  }
  return out;
}

/// Computes the same blocks by pulls of the basis, which give those of one result.
Tensors reverse_jacobian(const Linearized& linear, const std::vector<bool>& active) {
  const Types results = types_of(linear.results);
  Tensors out;
  for (std::size_t r = 0; r < results.size(); ++r) {
    const Type& type = results[r];
    check(is_differentiable(type.dtype),
          "jacrev: result {} is {}; a derivative needs float or complex", r, to_string(type));
    const Tensors rows = each_row(
        [&](TensorSpan cotangent) {
          Tensors ct(results.size());
          ct[r] = cotangent[0];
          return filled(linear.pull(ct), linear.input_types);
        },
        type, basis(type));
    for (std::size_t i = 0; i < active.size(); ++i)
      if (active[i]) out.push_back(with_dims(rows[i], type.dims, linear.input_types[i].dims));
  }
  return out;
}

}  // namespace

Tensors jacobian(bool forward, const TensorFunction& f, const Tensors& x,
                 const std::vector<bool>& active, const GradOptions& options, const Place& place) {
  PlaceScope at(place);
  const char* what = forward ? "jacfwd" : "jacrev";
  require_values(what, x);
  require_inputs(what, x, active, options, forward);
  const Closed closed = trace_user(what, types_of(x), f);
  const Types types = closed.program->output_types();
  for (const Type& t : types) {
    check(options.holomorphic || forward || !is_complex(t.dtype),
          "{}: a result is {}; for a holomorphic function set GradOptions::holomorphic", what,
          to_string(t));
    check(!options.holomorphic || is_complex(t.dtype),
          "{}: a result is {}; those of a holomorphic function are complex", what, to_string(t));
  }
  const Linearized linear = linearized(closed, x, active, std::vector<bool>(types.size(), true));
  if (forward) return forward_jacobian(linear, active);
  return reverse_jacobian(linear, active);
}

void require_structure(const char* what, const std::string& required, const std::string& got,
                       const Place& place) {
  PlaceScope at(place);
  check(required == got, "{} has the structure {}, required is {}", what, got, required);
}

void require_layout(const char* what, const char* kind, const Layout& required, const Layout& got,
                    const Place& place) {
  PlaceScope at(place);
  const auto is_within = [](const Layout& one, const Layout& tuple) {
    return tuple.text == fmt::format("({})", one.text);
  };
  check(required.leaves != got.leaves || required.text == got.text || is_within(required, got) ||
            is_within(got, required),
        "{}: the {} has the structure {}, required is {}", what, kind, got.text, required.text);
}

void refuse_prefix(const std::string& path, std::size_t parts, std::size_t given) {
  const char* entries = "specs";
  if (path.find("axes") != std::string::npos) entries = "axes";
  std::string what = "a single value";
  if (parts != 1) what = fmt::format("a container of {} parts", parts);
  throw_type_error(fmt::format("{} lists {} {} for {}", path, given, entries, what));
}

}  // namespace postern::detail
