// Blocks: named steps with a default in ordinary operations, for which a platform or a plug-in may
// bring something better.
#pragma once
#include <postern/detail/api.h>
#include <postern/detail/block_core.h>

namespace postern {

/// Returns default_fn(config, operands...), or default_fn(operands...), as one step of the program.
/// The type of `config`, a plain struct, is the block's identity; its fields (bool, numbers, enums,
/// DType, strings, vectors of them) are static: printed, compared, part of cache keys, given to
/// overrides. Its name is `Config::name` where it has one, else that of the type. Operands and
/// results are containers.
///
/// The default gives result types, derivatives and batching. The block stays one step through all
/// transformations; whether it becomes the default or an override is chosen for each platform when
/// the program is lowered, or at once outside of programs. The default may capture tensors; an
/// override does not see them. Throws TypeError for an operand that is an empty Tensor, what the
/// default throws, and where an override gives other types than the default, outside of programs at
/// once, else where the program is lowered.
///
///   struct Scale {
///     float factor = 1;  // static: two factors are two blocks
///   };
///   auto by_default = [](Scale s, pn::Tensor x) { return s.factor * x; };
///   const pn::Tensor y = pn::block(Scale{2}, by_default, pn::tensor<float>({1, 2}));  // [2 4]
template <class Config, class F, class... Operands>
auto block(const Config& config, F default_fn, const Operands&... operands) {
  return [&]<class... B>(const B&... x) {
    using Body = detail::BlockBody<Config, F>;
    const detail::Flat<Body, B...> flat(detail::Shared<Body>(Body(config, std::move(default_fn))),
                                        x...);
    const detail::Tensors y =
        detail::block(detail::erase_config(config), flat, detail::leaves_of(x...), nullptr);
    return detail::with_leaves(flat.like(), y);
  }(detail::held(operands)...);
}

/// Makes one with declared results, a container of Types or Tensors: throws TypeError naming both
/// when the default gives others.
template <class Out, class Config, class F, class... Operands>
auto block_like(const Out& out, const Config& config, F default_fn, const Operands&... operands) {
  return [&]<class... B>(const B&... x) {
    using Body = detail::BlockBody<Config, F>;
    const detail::Flat<Body, B...> flat(detail::Shared<Body>(Body(config, std::move(default_fn))),
                                        x...);
    std::vector<Type> declared;
    for (const Tensor& t : detail::leaves_of(detail::abstract_tree(out)))
      declared.push_back(t.type());
    const detail::Tensors y =
        detail::block(detail::erase_config(config), flat, detail::leaves_of(x...), &declared);
    return detail::with_leaves(flat.like(), y);
  }(detail::held(operands)...);
}

// A sharding rule says how a kernel may be cut into parts, as `"i j, j k -> i k; whole j"`: a name
// for each axis of each operand and result. Axes of one name, a factor, have one extent and are cut
// together. A factor that every result has may be cut: each part of the results is computed of
// those parts of the operands, and whatever has not that factor is there as a whole.
//
//   ...        any number of axes, counted from the last; the same wherever it stands
//   _          an axis that is never cut
//   whole a b  factors that are never cut
//   sum a b    factors that no result has, of numbers: cut all the same, and the results of the
//              parts summed up
//
// In a program over several devices the kernel runs on each part of its operands, as in shard_map,
// along the factors by which they are cut; nothing is gathered. Where they are not cut along any it
// works on the whole.

/// An XLA FFI handler by name: already registered, see `register_ffi_handler` and `load_library`.
struct FfiTarget {
  std::string name;
  Attributes attributes = {};  // beside the config's fields; a name that both have is a TypeError
  // Axes from the fastest to the slowest, one list for each operand or result; empty: row-major for
  // all.
  std::vector<Dims> operand_layouts = {}, result_layouts = {};
  // Result, operand: the result, of the operand's type, may be written over the operand.
  std::vector<std::pair<int, int>> aliases = {};
  // In which it computes, one for each operand or result; empty: as they come. Operands are
  // converted to these where they are wider (of integers, any float from f32 on), and results,
  // which are of these, to what they shall be.
  std::vector<DType> operand_dtypes = {}, result_dtypes = {};
  // How it may be cut in programs over several devices, a sharding rule; empty: not at all, it
  // then works on the whole.
  std::string sharding = {};
  // It is called each time the program passes, in no order with others, also when nobody uses its
  // results or there are none; else it may be left out, or called once where it stands twice.
  bool side_effect = false;
  Place place = {};  // where it was made, for errors
  /// Has no name; or is of that name. They throw nothing.
  FfiTarget() = default;
  FfiTarget(const char* target, Place at = Place::current()) : name(target), place(at) {}
  FfiTarget(std::string target, Attributes extra = {}, Place at = Place::current())
      : name(std::move(target)), attributes(std::move(extra)), place(at) {}
};

/// A host function for a block: see Callee. Its first parameter may be `const Config&`.
template <class Config>
class BlockKernel {
 public:
  BlockKernel() = default;
  /// Takes the other parameters of a Callee. Throws nothing: what does not fit is found where the
  /// override is chosen.
  template <class F>
  requires(!std::is_same_v<std::decay_t<F>, BlockKernel>)
      BlockKernel(F&& f, Place place = Place::current())
      : bound_(detail::bind_kernel<Config>(std::forward<F>(f), place)), place_(place) {}
  const detail::BoundKernel& bound() const { return bound_; }
  /// Returns where it was written. Throws nothing.
  const Place& place() const { return place_; }

 private:
  detail::BoundKernel bound_;
  Place place_;
};

/// How an override may be cut: a sharding rule, or a function of config and operand types, of one
/// element under vmap, that returns one.
template <class Config>
class BlockSharding {
 public:
  BlockSharding() = default;
  /// Takes a rule, or the function. Throw nothing: what is no rule is found by override_block, or
  /// where the override is used.
  BlockSharding(const char* rule) : text_(rule) {}
  BlockSharding(std::string rule) : text_(std::move(rule)) {}
  template <class F>
  requires(std::is_invocable_r_v<std::string, F&, const Config&, std::span<const Type>>)
      BlockSharding(F f)
      : function_([f = std::move(f)](const void* config, std::span<const Type> operands) {
          return std::string(f(*static_cast<const Config*>(config), operands));
        }) {}
  const std::string& text() const { return text_; }
  const detail::ErasedSharding& function() const { return function_; }

 private:
  std::string text_;
  detail::ErasedSharding function_;
};

/// A derivative in reverse mode that comes with an override, on leaves, in ordinary operations,
/// calls, other blocks and `ffi_call`. `forward` gives the results and what is kept, `backward` the
/// cotangents of the operands (an empty Tensor: zero) from what was kept and the cotangents of the
/// results. Forward mode keeps to the default.
template <class Config>
struct BlockVjp {
  std::function<std::pair<std::vector<Tensor>, std::vector<Tensor>>(
      const Config&, std::span<const Tensor> operands)>
      forward = {};
  std::function<std::vector<Tensor>(const Config&, std::span<const Tensor> residuals,
                                    std::span<const Tensor> cotangents)>
      backward = {};
};

/// What is to be used for blocks of type Config: exactly one of `kernel`, `target` and `program`.
template <class Config>
struct BlockOverride {
  std::string platform = {};  // "cpu", "cuda"; empty: any
  std::function<bool(const Config&, std::span<const Type> operands)> when =
      {};  // types of one element under vmap; none: always
  BlockKernel<Config> kernel =
      {};  // declines where its parameters are of other dtypes than the operands
  FfiTarget target = {};
  std::function<std::vector<Tensor>(const Config&, std::span<const Tensor> operands)> program =
      {};                     // other operations than the default's
  BlockVjp<Config> vjp = {};  // none: the default's
  /// How vmap treats a kernel or target (a target: not parallel). None: a batched block becomes its
  /// batched default.
  std::optional<VmapMethod> batch = {};
  // As of an FfiTarget. What `operand_dtypes` cannot be made of its operands, it declines.
  std::vector<DType> operand_dtypes = {}, result_dtypes = {};
  BlockSharding<Config> sharding = {};
};

/// What `override_block` returns. Dropping it changes nothing. No member throws.
class OverrideHandle {
 public:
  /// Takes an id; 0: of no override.
  explicit OverrideHandle(std::uint64_t id = 0) : id_(id) {}
  /// Returns whether it was still there. Programs compiled from now on, also by functions that were
  /// jitted before, do without it.
  bool remove() const { return detail::remove_override(id_); }
  /// Returns whether it is still there.
  bool active() const { return detail::has_override(id_); }

 private:
  std::uint64_t id_;
};

/// Uses something better for blocks of type Config, from now on; what is jitted already notices.
/// Where several overrides apply, the latest that accepts is used. An override computes what the
/// default does: effects of the default (taps) are not repeated by it. Throws TypeError where not
/// exactly one of kernel, target and program is given, half a vjp, a platform that there is not,
/// with a target VmapMethod::parallel, or a sharding rule that is none.
///
///   struct Double {};
///   auto handle = pn::override_block<Double>(
///       {.platform = "cpu", .kernel = [](pn::View<const float> x, pn::View<float> y) {
///          for (std::int64_t i = 0; i < x.size(); ++i) y[i] = 2 * x[i];
///        }});
///   auto by_default = [](pn::Tensor x) { return x + x; };
///   const pn::Tensor y = pn::block(Double{}, by_default, pn::tensor<float>({1, 2}));  // [2 4]
template <class Config>
OverrideHandle override_block(BlockOverride<Config> o) {
  detail::ErasedOverride e;
  e.type = &typeid(Config);
  e.config_from = &detail::config_from<Config>;
  e.block = detail::block_name<Config>();
  e.platform = std::move(o.platform);
  auto as_config = [](const void* config) -> const Config& {
    return *static_cast<const Config*>(config);
  };
  if (o.when)
    e.when = [f = std::move(o.when), as_config](const void* c, std::span<const Type> types) {
      return f(as_config(c), types);
    };
  e.kernel = o.kernel.bound();
  if (!o.target.name.empty()) e.target = std::make_shared<const FfiTarget>(std::move(o.target));
  if (o.program)
    e.program = [f = std::move(o.program), as_config](const void* c, std::span<const Tensor> x) {
      return f(as_config(c), x);
    };
  if (o.vjp.forward)
    e.vjp_forward = [f = std::move(o.vjp.forward), as_config](
                        const void* c, std::span<const Tensor> x) { return f(as_config(c), x); };
  if (o.vjp.backward)
    e.vjp_backward = [f = std::move(o.vjp.backward), as_config](
                         const void* c, std::span<const Tensor> kept, std::span<const Tensor> ct) {
      return f(as_config(c), kept, ct);
    };
  e.batch = o.batch;
  e.operand_dtypes = std::move(o.operand_dtypes);
  e.result_dtypes = std::move(o.result_dtypes);
  e.sharding = o.sharding.text();
  e.sharding_of = o.sharding.function();
  e.place = o.kernel.place();
  return OverrideHandle(detail::add_override(std::move(e)));
}

/// Returns the default for blocks of type Config whatever overrides there are, until the handle is
/// removed or a later override accepts. Throws nothing.
template <class Config>
OverrideHandle keep_default() {
  detail::ErasedOverride e;
  e.type = &typeid(Config);
  e.config_from = &detail::config_from<Config>;
  e.block = detail::block_name<Config>();
  e.keeps_default = true;
  return OverrideHandle(detail::add_override(std::move(e)));
}

/// Which way a block takes. `none`: no block of that type has been used and no override applies.
struct BlockPath {
  enum class Kind : std::uint8_t { native, default_body, none } kind;
  std::string text;  // in words, with the reasons
};
namespace detail {
POSTERN_API BlockPath block_path(const BlockConfig& config, std::span<const Type> operands,
                                 const std::string& platform, const Place& place);
}
/// Returns what lowering for `platform` will choose for a block with these operands, not batched,
/// and with results that the chosen kernel takes (a program's print says it for its own blocks in
/// any case). Throws TypeError for a platform that there is not.
template <class Config>
BlockPath block_path(const Config& config, const std::vector<Type>& operands,
                     const std::string& platform = "cpu", Place place = Place::current()) {
  return detail::block_path(detail::erase_config(config), operands, platform, place);
}
/// Returns its text. Throws nothing.
POSTERN_API std::string to_string(const BlockPath& path);

namespace detail {
POSTERN_API Tensors ffi_call(const FfiTarget& target, const std::vector<Type>& out,
                             const Tensors& operands, std::optional<VmapMethod> vmap);
}
/// Calls an XLA FFI handler; `out` is a container of Types or Tensors. It has no derivative of its
/// own (TypeError). Attributes are numbers, bools, strings and lists of numbers: XLA carries no
/// others. `vmap`: sequential (element by element, in a loop), expand_dims or broadcast_all; none:
/// a TypeError under vmap. Throws TypeError for other attributes, for a target without name, or
/// without results and side effect, and for layouts, aliases, dtypes and sharding rules that do not
/// fit; an error that the handler returns is an Error of its code at whoever waits for the run.
///
///   auto scaled = [](pn::Tensor x) {
///     const pn::FfiTarget target("my_scale", {{"factor", 2.0}});
///     return pn::ffi_call(target, x.type(), std::nullopt, x);
///   };
template <class Out, class... Operands>
typename detail::tensors_of<Out>::type ffi_call(const FfiTarget& target, const Out& out,
                                                std::optional<VmapMethod> vmap,
                                                const Operands&... operands) {
  auto like = detail::abstract_tree(out);
  std::vector<Type> types;
  for (const Tensor& t : detail::leaves_of(like)) types.push_back(t.type());
  return detail::with_leaves(
      std::move(like),
      detail::ffi_call(target, types, detail::leaves_of(detail::held(operands)...), vmap));
}

}  // namespace postern
