// call, and the primitive that taps, hooks and prints share with it.
#include "site/site.h"

#include <postern/shard.h>

#include <algorithm>

#include "core/enum.h"
#include "ops/family.h"
#include "ops/shape.h"
#include "shard/shard_map.h"
#include "site/own_functions.h"
#include "site/residual_store.h"
#include "transform/walk.h"

namespace postern::internal {

namespace {

const SiteSpec& spec_of(const Params* params) { return *as<SiteParams>(*params).site; }

/// Started calls keep their place among each other and who waits for them, whatever the user asked
/// of their functions: XLA would start a function when its results are needed.
Effect site_effect(const Params* params) {
  const SiteSpec& s = spec_of(params);
  if (s.call.role == SiteCall::Role::whole) return s.effect;
  return Effect::ordered;
}

Types site_type(const Params* params, TypeSpan operands) {
  const SiteSpec& s = spec_of(params);
  check(operands.size() == s.operands.size() + s.batch.masked, "{}: {} operands, the site has {}",
        s.name, operands.size(), s.operands.size() + s.batch.masked);
  for (std::size_t i = 0; i < s.operands.size(); ++i) {
    Type type = s.operands[i];
    for (std::size_t l = s.batch.levels.size(); l-- > 0;)
      if (s.batch.levels[l].mapped[i]) type.dims.insert(type.dims.begin(), s.batch.levels[l].size);
    check(operands[i].dtype == type.dtype && operands[i].dims == type.dims,
          "{}: operand {} must be {}, got {}", s.name, i, to_string(type), to_string(operands[i]));
  }
  Types out;
  if (s.is_tap()) {
    for (std::size_t i = 0; i < s.operands.size(); ++i) out.push_back(operands[i]);
    return out;
  }
  Dims batch;  // sizes of levels, outermost first: a result has all of them
  for (const BatchLevel& level : s.batch.levels) batch.push_back(level.size);
  for (Type type : s.results) {
    type.dims.insert(type.dims.begin(), batch.begin(), batch.end());
    out.push_back(std::move(type));
  }
  return out;
}

bool is_mapped(int axis) { return axis >= 0; }

/// Returns what a tap is told of a batch: "batch(0)"; "batch(0,none)" where a leaf lacks the axis.
std::string record_of_batch(std::span<const int> axes) {
  if (std::ranges::all_of(axes, is_mapped)) return "batch(0)";
  std::string out;
  for (const int axis : axes) out += axis < 0 ? ",none" : ",0";
  return fmt::format("batch({})", out.substr(1));
}

/// Has the function see whole batches, with the axis in front. Operands that lack it a tap leaves
/// alone; for a call they are repeated, or with expand_dims get an axis of size 1.
Batched batch_whole(SiteSpec s, Tensors x, std::span<const int> axes, std::int64_t size,
                    const Tensor& mask) {
  const std::size_t n = s.operands.size();
  for (std::size_t i = 0; i < n; ++i) {
    if (axes[i] < 0 && s.is_tap()) continue;
    if (axes[i] < 0 && s.call.vmap == VmapMethod::expand_dims)
      x[i] = expand_dims(x[i], 0);
    else
      x[i] = batch_front(x[i], axes[i], size);
    s.operands[i] = Type{x[i].dtype(), x[i].dims()};
  }
  for (auto* list : {&s.results, &s.call.later})
    for (Type& t : *list) t.dims.insert(t.dims.begin(), size);
  if (s.shard.spec && n > 0 && (axes[0] >= 0 || !s.is_tap())) {
    auto parts = s.shard.spec->parts();
    parts.insert(parts.begin(), std::vector<std::string>());
    s.shard.spec = P(std::move(parts));
    s.shard.global_dims.insert(s.shard.global_dims.begin(),
                               axes[0] >= 0 || s.call.vmap != VmapMethod::expand_dims ? size : 1);
  }
  if (s.batch.masked && (mask.has_value() || axes[n] >= 0)) {  // alive in both batches
    x[n] = batch_front(x[n], axes[n], size);
    if (mask.has_value()) x[n] = logical_and(x[n], broadcast_in_dim(mask, x[n].dims(), {0}));
    s.batch.mask_size = x[n].size();
  } else if (mask.has_value()) {
    s.batch.masked = true;
    s.batch.mask_size = mask.size();
    x.push_back(mask);
  }
  const bool is_tap = s.is_tap();
  if (is_tap) s.tap.transforms.push_back(record_of_batch(axes.first(n)));
  Tensors y = at_site(std::move(s), x);
  std::vector<int> out(y.size(), 0);
  for (std::size_t i = 0; i < y.size() && is_tap; ++i)
    if (axes[i] < 0) out[i] = -1;
  return {y, out};
}

/// Has the function run for each element: the site gets one more level, outside of those that it
/// has, the mapped operands their axis in front.
Batched batch_elements(SiteSpec s, Tensors x, std::span<const int> axes, std::int64_t size,
                       const Tensor& mask) {
  BatchLevel level{size, {}};
  for (std::size_t i = 0; i < x.size(); ++i) {
    level.mapped.push_back(axes[i] >= 0);
    x[i] = batch_front(x[i], axes[i], size, false);
  }
  if (mask.has_value()) {
    if (s.batch.masked) {  // alive in both
      Tensor inner = x.back();
      if (!level.mapped.back()) inner = batch_front(inner, -1, size);
      x.back() = logical_and(inner, broadcast_in_dim(mask, inner.dims(), {0}));
      level.mapped.back() = true;
    } else {
      s.batch.masked = true;
      x.push_back(mask);
      level.mapped.push_back(true);
      for (BatchLevel& inner : s.batch.levels) inner.mapped.push_back(false);
    }
  }
  if (s.batch.masked) s.batch.mask_size = x.back().size();
  s.batch.levels.insert(s.batch.levels.begin(), std::move(level));
  Tensors y = at_site(std::move(s), x);
  return {y, std::vector<int>(y.size(), 0)};
}

/// Whether a tap shows tangents or cotangents. A zero one may not be mapped where its value is, and
/// is shown for each element all the same.
bool shows_derivatives(const SiteSpec& s) {
  return s.tap.derivatives && std::ranges::find(s.tap.transforms, "jvp") != s.tap.transforms.end();
}

/// Has a tap that shows derivatives see whole batches. `given`: where operands have the axis, or
/// -1.
Batched batch_derivatives(const SiteSpec& s, Tensors x, std::span<const int> given,
                          std::int64_t size, const Tensor& mask) {
  std::vector<int> axes(given.begin(), given.end());
  const bool values_elsewhere =  // another site has shown them
      s.tap.paired == 0 ||
      std::ranges::find(s.tap.transforms, "transpose") != s.tap.transforms.end();
  const std::size_t half = s.operands.size() / 2;
  for (std::size_t i = 0; i < s.operands.size(); ++i) {
    // What stands for the tangent of an integer has its value's shape, if that is shown beside it.
    const bool of_each =
        is_differentiable(x[i].dtype()) || values_elsewhere || (i >= half && axes[i - half] >= 0);
    if (axes[i] >= 0 || !of_each) continue;
    x[i] = batch_front(x[i], -1, size);
    axes[i] = 0;
  }
  return batch_whole(s, std::move(x), axes, size, mask);
}

Batched site_batch(const Op& op, TensorSpan x, std::span<const int> axes, std::int64_t size,
                   const Tensor& mask) {
  const SiteSpec& s = *op.as<SiteParams>().site;
  const bool differs = std::ranges::any_of(axes, is_mapped) || shows_derivatives(s);
  // What no element can tell apart runs once; an effect is wanted from each. And whoever waits for
  // one call gets what all elements share.
  const bool runs_once = !differs && (s.effect == Effect::pure || s.is_tap()) && !mask.has_value();
  const bool waits_for_one = s.call.role == SiteCall::Role::wait && axes[0] < 0;
  if (runs_once || waits_for_one) {
    const std::size_t results = s.is_tap() ? s.operands.size() : s.results.size();
    return {bind_n(op.primitive, op.params, x), std::vector<int>(results, -1)};
  }
  Tensors operands(x.begin(), x.end());
  if (shows_derivatives(s)) return batch_derivatives(s, std::move(operands), axes, size, mask);
  const bool takes_whole =
      s.call.vmap == VmapMethod::expand_dims || s.call.vmap == VmapMethod::broadcast_all;
  check(s.memory == Memory::host || (!mask.has_value() && takes_whole),
        "vmap: call '{}' with Memory::device is not entered for each element; give it expand_dims "
        "or broadcast_all, outside of loops whose elements end at different times",
        s.name);
  if (s.is_tap() || takes_whole) return batch_whole(s, std::move(operands), axes, size, mask);
  return batch_elements(s, std::move(operands), axes, size, mask);
}

/// One operand or result of the custom call, as it is written.
struct Port {
  Ssa value;
  std::string type;
  std::int64_t rank;
};

/// Writes `text` of each port, between commas, behind `open` and before `close`.
void write_ports(Lowering& out, const char* open, std::span<const Port> ports,
                 std::string (*text)(const Port&), const char* close) {
  Separator comma;
  out.write("{}", open);
  for (const Port& port : ports) out.write("{}{}", comma(), text(port));
  out.write("{}", close);
}

std::string port_value(const Port& p) { return fmt::format("%{}", p.value.id); }
std::string port_type(const Port& p) { return p.type; }
std::string port_layout(const Port& p) { return Lowering::layout(p.rank); }

/// A result that is an operand's memory.
struct Alias {
  std::size_t operand, result;
};

void write_custom_call(Lowering& out, const SiteSpec& s, std::size_t index,
                       std::span<const Port> in, std::span<const Port> results,
                       std::span<const Alias> aliases, bool answers) {
  write_ports(out, "    ", results, port_value, results.empty() ? "" : " = ");
  write_ports(out, "\"stablehlo.custom_call\"(", in, port_value, ") ");
  out.write(
      "{{call_target_name = \"{}\", api_version = 4 : i32, backend_config = {{id = {} : i64, "
      "label = {}{}}}",
      s.memory == Memory::device_recorded ? "postern_recorded_call" : "postern_call", index,
      Lowering::string(s.name), answers ? ", tells = 1 : i64" : "");
  // XLA knows what an empty array holds and would leave out a call that makes nothing else.
  const bool empty = !s.results.empty() &&
                     std::ranges::all_of(s.results, [](const Type& t) { return t.size() == 0; });
  if (s.effect != Effect::pure || empty) out.write(", has_side_effect = true");
  out.write("{}", out.where_it_runs(results.size(), s.call.device));
  // XLA may choose any layout for the buffers of a custom call; host functions see row-major ones.
  const auto has_choice = [](const Port& p) { return p.rank > 1; };
  if (std::ranges::any_of(in, has_choice) || std::ranges::any_of(results, has_choice)) {
    write_ports(out, ", operand_layouts = [", in, port_layout, "]");
    write_ports(out, ", result_layouts = [", results, port_layout, "]");
  }
  Separator before_alias(", ", ", output_operand_aliases = [");
  for (const Alias& a : aliases)
    out.write("{}{}", before_alias(),
              Lowering::alias(static_cast<int>(a.result), static_cast<int>(results.size()),
                              static_cast<int>(a.operand)));
  out.write("{}", aliases.empty() ? "" : "]");
  write_ports(out, "} : (", in, port_type, ")");
  write_ports(out, " -> (", results, port_type, ")\n");
}

/// Where XLA cuts the program, a site's whole operands come together on one device.
void check_gathered(const Lowering& out, const Equation& e, const SiteSpec& s) {
  if (!out.partitioned() || out.mesh() || out.gather_limit() == 0) return;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < e.operands.size(); ++i) bytes += out.operand_type(e, i).byte_size();
  if (own_functions.of_residuals(s.named.name))  // of so many steps
    bytes /= size_of(room_for_steps(s.named.attributes));
  PlaceScope::Replace at(s.place);
  check(bytes <= out.gather_limit(),
        "{} '{}': {} bytes of operands {} are gathered on one device, and at most {} are allowed "
        "(JitOptions::gather_limit, Config::gather_limit); with the option partitioned each device "
        "gives its own part and nothing is gathered",
        word_of(s.kind), s.name, bytes, to_string(s.operands), out.gather_limit());
}

/// Writes the site's custom call and defines the equation's results.
///
/// The value of a tap goes on through the custom call when nobody reads the result otherwise than
/// XLA can see, else beside it: then the token keeps later calls behind an ordered tap.
///
/// The call's operands are the site's own, awaited values that a start hands on, and the token. Its
/// results are the site's own (a tap's: what goes through), those handed on, the answer whether the
/// run goes on, and the token. The host takes the first by their number and looks for the answer
/// from the end, so this order must stay. What follows reads a tap's value, awaited values and the
/// token from the call's results; that is set last, when all of its own operands have been read.
void site_lower(Lowering& out, const Equation& e) {
  const SiteSpec& s = spec_of(e.params.get());
  check_gathered(out, e, s);
  if (s.tap.derivatives) check_signature(s);  // what it shows has changed since it was written
  const bool ordered = site_effect(e.params.get()) == Effect::ordered;
  const bool tap = s.is_tap();
  std::vector<Port> in, results;
  std::vector<Alias> aliases;
  const auto add_result = [&](const Type& type) {
    results.push_back({out.fresh(), Lowering::type(type), type.rank()});
    return results.back().value;
  };
  const auto goes_through = [&](const Port& port) {
    aliases.push_back({in.size() - 1, results.size()});
    results.push_back({out.fresh(), port.type, port.rank});
  };
  bool goes_beside = false;
  for (std::size_t i = 0; i < e.operands.size(); ++i) {
    const Type& type = out.operand_type(e, i);
    const bool passes = tap && i < s.operands.size() && out.needed(e, static_cast<int>(i));
    const bool through = passes && out.may_forward(e, i);
    in.push_back({out.operand(e, i), Lowering::type(type), type.rank()});
    goes_beside |= passes && !through;
    if (tap && i < s.operands.size()) out.define(e, static_cast<int>(i), in.back().value);
    if (through) goes_through(in.back());
  }
  // What is kept for who waits would stay until the run's end.
  const bool starts = s.call.role == SiteCall::Role::start;
  const bool unawaited = starts && !out.needed(e, 0);
  std::vector<Lowering::Awaited> made;
  for (int i = 0; i < e.results && !tap && !unawaited; ++i) {
    const Type& type = out.result_type(e, i);
    const Ssa value = add_result(type);
    out.define(e, i, value);
    if (s.call.role == SiteCall::Role::wait && out.needed(e, i)) made.push_back({value, type});
  }
  for (const auto& [value, type] : starts ? out.awaited() : std::vector<Lowering::Awaited>()) {
    in.push_back({value, Lowering::type(type), type.rank()});
    goes_through(in.back());
  }
  // One that XLA may take out of the loop, or leave out, answers nothing.
  const bool answers = out.asks() && s.effect != Effect::pure;
  if (answers) out.answer(add_result({DType::pred, {}}));
  if (ordered || (out.token_orders_calls() && !tap))
    in.push_back({out.token(), Lowering::token_type, 0});
  if (ordered) results.push_back({out.fresh(), Lowering::token_type, 0});
  SitePtr site = as<SiteParams>(*e.params).site;
  if (unawaited) {
    SiteSpec alone = s;
    alone.results.clear();
    site = std::make_shared<const SiteSpec>(std::move(alone));
  }
  write_custom_call(out, *site, out.add_site(site), in, results, aliases, answers);
  for (const Alias& a : aliases) out.forward(in[a.operand].value, results[a.result].value);
  if (s.call.role == SiteCall::Role::wait) out.set_awaited(std::move(made));
  if (ordered) out.set_token(results.back().value);
  if (ordered && goes_beside) out.set_token_orders_calls();
}

const SiteSpec* site_of(const Params* params) { return &spec_of(params); }

}  // namespace

constexpr Primitive site_p{.name = "call",
                           .type = site_type,
                           .jvp = site_jvp,
                           .transpose = site_transpose,
                           .linear = Linear::jointly,
                           .split = site_split,
                           .batch = site_batch,
                           .lower = site_lower,
                           .effect = site_effect,
                           .distinct = true,
                           .site = site_of};

namespace {

/// The site in a shard_map of its own.
Tensors at_parts(const SiteSpec& site, TensorSpan operands) {
  const Sharding& sharding = *site.shard.partitioned;
  auto on_each = [&](TensorSpan parts) {
    SiteSpec one = site;
    one.operands = types_of(parts);
    for (Type& t : one.results) t = sharding.part_type(t);
    one.shard.spec = sharding.spec();
    one.shard.global_dims = operands.empty() ? Dims() : operands[0].dims();
    return at_site(std::move(one), parts);
  };
  const std::size_t results = site.is_tap() ? operands.size() : site.results.size();
  const detail::ShardMapCall call{sharding.mesh(), std::vector<P>(operands.size(), sharding.spec()),
                                  [&] { return std::vector<P>(results, sharding.spec()); }};
  return detail::shard_map(on_each, call, Tensors(operands.begin(), operands.end()), site.place);
}

}  // namespace

Tensors at_site(SiteSpec site, TensorSpan operands) {
  if (site.shard.partitioned && !current_mesh()) return at_parts(site, operands);
  check_signature(site);
  if (const Mesh* mesh = current_mesh(); mesh && !site.shard.mesh) {
    site.shard.mesh = std::make_shared<const Mesh>(*mesh);
    check(site.call.device < 0 &&
              (!site.shard.partitioned || site.shard.partitioned->mesh() == *mesh),
          "{} '{}': inside shard_map each device calls for itself; the options device and "
          "partitioned have no meaning there",
          word_of(site.kind), site.name);
  }
  return bind_n(site_p, params_of_own(std::move(site)), operands);
}

SiteSpec call_site(const CallOptions& options, const Types& out, const std::string& structure,
                   const std::vector<std::string>& paths, const Callee& fn, TensorSpan operands) {
  check_enum(fmt::format("call '{}': Effect", options.name), options.effect, Effect::ordered);
  check_enum(fmt::format("call '{}': VmapMethod", options.name), options.vmap,
             VmapMethod::broadcast_all);
  check_enum(fmt::format("call '{}': Memory", options.name), options.memory,
             Memory::device_recorded);
  check(options.timeout.count() >= 0,
        "call '{}': timeout must be positive, or 0 for none, got {} ns", options.name,
        options.timeout.count());
  check(options.warn_after.count() >= 0,
        "call '{}': warn_after must be positive, or 0 for never, got {} ns", options.name,
        options.warn_after.count());
  check(!options.one_order || options.effect == Effect::ordered,
        "call '{}': one_order is for ordered calls; give it .effect = Effect::ordered",
        options.name);
  check(options.memory == Memory::host || options.timeout.count() == 0,
        "call '{}': a time limit needs copies of the operands, which a call with Memory::device "
        "does not make",
        options.name);
  check(options.memory != Memory::device_recorded || options.effect == Effect::pure,
        "call '{}': Memory::device_recorded is for pure calls: what is recorded is played again "
        "without entering the function",
        options.name);
  check(options.device >= -1, "call '{}': device must be an ordinal, or -1 for the first, got {}",
        options.name, options.device);
  check_device(options);
  SiteSpec s;
  s.name = options.name;
  s.place = fn.place();
  s.function = fn.function();
  s.named = fn.named();
  for (const Tensor& t : operands) s.operands.push_back({t.dtype(), t.dims()});
  for (const Type& t : out) s.results.push_back({t.dtype, t.dims});
  s.trees.result_structure = structure;
  s.trees.result_paths = paths;
  s.effect = options.effect;
  s.call.timeout = options.timeout;
  s.call.warn_after = options.warn_after;
  s.call.vmap = options.vmap;
  s.call.device = options.device;
  s.shard.partitioned = options.partitioned;
  s.memory = options.memory;
  s.one_order = options.one_order;
  return s;
}

}  // namespace postern::internal

namespace postern {
using namespace internal;

void Callee::check_callable(bool callable, Place place) {
  PlaceScope at(place);
  check(callable, "a host function is null");
}

void detail::check_template(const std::string& call, const Place& place, const std::string& path,
                            const Type& leaf) {
  PlaceScope at(place);
  check(leaf.dtype != DType::token, "call '{}': result {} has no dtype that holds data, it is {}",
        call, path, to_string(leaf));
  check(std::ranges::all_of(leaf.dims, [](std::int64_t d) { return d >= 0; }),
        "call '{}': every extent of result {} must be 0 or more, got {}", call, path,
        to_string(leaf));
}
void detail::check_template(const std::string& call, const Place& place, const std::string& path,
                            const Tensor& leaf) {
  PlaceScope at(place);
  check(leaf.has_value(),
        "call '{}': result {} is an empty Tensor, which has no type; give its type, or an abstract "
        "tensor",
        call, path);
  check_template(call, place, path, leaf.type());
}

Tensors detail::call(const CallOptions& options, const Types& out, const std::string& structure,
                     const std::vector<std::string>& paths, const Callee& fn,
                     const Tensors& operands) {
  PlaceScope at(fn.place());
  check(!out.empty() || options.effect != Effect::pure,
        "call '{}': a pure call without results could never be observed; give it results, or "
        "effect unordered or ordered",
        options.name);
  return at_site(call_site(options, out, structure, paths, fn, operands), operands);
}

}  // namespace postern
