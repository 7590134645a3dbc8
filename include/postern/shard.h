// Programs over several devices: a mesh names them, a Sharding says which part of an array lies
// where. `jit` over sharded tensors lets XLA partition the program; `shard_map` writes it for one
// part, with collectives between the parts. See docs/devices.md.
#pragma once
#include <postern/call.h>
#include <postern/detail/api.h>
#include <postern/jit.h>
#include <postern/sharding.h>
#include <postern/transforms.h>

#include <utility>

namespace postern {

// --- where tensors are ---

/// What each process gives of an array that is spread over processes: all of them the same whole,
/// or each its own part.
enum class Gives : std::uint8_t { whole, part };

namespace detail {
POSTERN_API Tensor put(const Tensor& x, int device, const Place& place);
POSTERN_API Tensor put(const Tensor& x, const Sharding& sharding, Gives gives, const Place& place);
POSTERN_API Tensor collect(const Tensor& x, int rank, const Place& place);
}  // namespace detail

/// Puts the leaves of `x` on that device of `devices()`. Programs run where their arguments were
/// put; arguments that were put on different devices are a TypeError. Inside a trace it is a
/// TypeError too, since a program runs on one set of devices, and so is a device that there is not.
template <class Tree>
Tree device_put(const Tree& x, int device, Place place = Place::current()) {
  return map_leaves([&](const Tensor& leaf) { return detail::put(leaf, device, place); }, x);
}
/// Spreads the leaves of `x` over the devices of a mesh, each of which gets its part. Host memory
/// is used in place where an array is not cut. Inside a trace it asks that XLA have the value in
/// that sharding there (JAX's with_sharding_constraint). Throws TypeError when an extent cannot be
/// divided evenly, and inside shard_map.
///
///   const pn::Mesh mesh({{"x", 2}});
///   const pn::Tensor x = pn::device_put(pn::iota<float>(4), pn::Sharding(mesh, pn::P("x")));
///   const pn::Tensor y = pn::jit([](pn::Tensor t) { return 2.0f * t; })(x);  // [0 2 4 6]
///
/// Over a mesh with axes of processes every process calls it, and nothing is sent: each keeps its
/// part of the whole that all give, which nothing compares, or, with Gives::part, what it gives
/// (jax.make_array_from_process_local_data). The result has the type of the whole.
template <class Tree>
Tree device_put(const Tree& x, const Sharding& sharding, Gives gives,
                Place place = Place::current()) {
  return map_leaves([&](const Tensor& leaf) { return detail::put(leaf, sharding, gives, place); },
                    x);
}
template <class Tree>
Tree device_put(const Tree& x, const Sharding& sharding, Place place = Place::current()) {
  return device_put(x, sharding, Gives::whole, place);
}

/// Returns the leaves of `x` as wholes. Those that lie over processes are sent to every process, or
/// with `rank` to that one alone, and then are empty Tensors on the others; all processes of the
/// cluster must call it, in the same order as programs with collectives. Other leaves are given
/// back as they are. Whatever else needs a part that is on another process (to_vector, operations
/// that are not elementwise) is a TypeError. In a program it is an operation like others, with
/// derivatives and batching, and takes no rank. Throws TypeError inside shard_map, and an Error
/// that names the process where one does not come.
template <class Tree>
Tree collect(const Tree& x, Place place = Place::current()) {
  return map_leaves([&](const Tensor& leaf) { return detail::collect(leaf, -1, place); }, x);
}
template <class Tree>
Tree collect(const Tree& x, int rank, Place place = Place::current()) {
  return map_leaves([&](const Tensor& leaf) { return detail::collect(leaf, rank, place); }, x);
}

/// Returns the sharding of a tensor that lies on several devices; none for others. Throws nothing.
POSTERN_API std::optional<Sharding> sharding_of(const Tensor& x);

/// One part of a sharded tensor.
struct Shard {
  int device;
  std::vector<IndexRange> range;  // of the part in the whole, by axis
  Tensor data;                    // on that device, not copied
};
/// Returns the parts of a sharded tensor in the order of the mesh's devices, or the tensor itself
/// as the only one; of one that lies over processes those on this one's devices. Gathers nothing;
/// the parts share the tensor's memory and may still be on their way. Throws TypeError for a tensor
/// that is empty or traced.
POSTERN_API std::vector<Shard> shards_of(const Tensor& x, Place place = Place::current());

/// Returns x, of which `tell` hears how XLA spread it when the program is compiled, each time one
/// is; a value that is there already, at once. What lies on one device is on a mesh of that one,
/// and what the program's meshes have no spec for on a mesh made for it. Batched values have their
/// batch axis too; of derivatives it is the value that is inspected. The program is compiled a
/// second time for it. Throws TypeError in shard_map, and when the program is compiled, in loops
/// and branches. JAX's inspect_array_sharding.
[[nodiscard]] POSTERN_API Tensor inspect_sharding(const Tensor& x,
                                                  std::function<void(const Sharding&)> tell,
                                                  Place place = Place::current());

/// Programs whose arguments were put nowhere run on this device while it lives, on this thread.
/// Scopes nest.
class DeviceScope {
 public:
  /// Throws TypeError for a device that there is not.
  POSTERN_API explicit DeviceScope(int device, Place place = Place::current());
  POSTERN_API ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;

 private:
  int outer_;
};

// --- compiled functions on other devices ---

namespace detail {
POSTERN_API Tensors call_on_device(const CallOptions& options, const std::vector<Type>& out,
                                   const TensorFunction& f, const Tensors& x);
}

/// Calls a compiled function from inside a program, on the device that the options name (-1: where
/// the program runs, as part of it, without any call). Unlike other host functions it has
/// derivatives and batching, which follow from what it does and run on that device too, and it may
/// return any container of the declared types. Of the options only name and device may be given.
/// Throws TypeError, at trace time, when its results are not as declared.
template <class Out, class F, class... Operands>
typename detail::tensors_of<Out>::type call(const CallOptions& options, const Out& out,
                                            const Jitted<F>& fn, const Operands&... operands) {
  auto like = detail::template_of(options.name, out, options.place);
  const auto trees = std::make_tuple(detail::as_tree(operands)...);
  const detail::TensorFunction on_leaves = [&](std::span<const Tensor> in) {
    const Tensor* next = in.data();
    const auto arguments = detail::with_leaves(trees, next);
    return detail::leaves_of(std::apply(fn, arguments));
  };
  return detail::with_leaves(
      std::move(like.tree),
      detail::call_on_device(options, like.types, on_leaves, detail::leaves_of(trees)));
}

// --- shard_map ---

/// How whole arrays become parts, and parts whole arrays: one P for each argument and each result
/// (for a container, one for all its leaves or a list with one for each of its parts). A function
/// that returns a tuple has as many results as that has elements.
struct ShardMapOptions {
  detail::Prefix<P> in = {};   // default: P(), every device sees the whole
  detail::Prefix<P> out = {};  // P(): all devices must have computed the same; nothing checks it
};

namespace detail {

struct ShardMapCall {
  Mesh mesh;
  std::vector<P> in;
  Function<std::vector<P>()> out;  // known once the function was called
};
POSTERN_API Tensors shard_map(const TensorFunction& f, const ShardMapCall& call, const Tensors& x,
                              const Place& place);

/// Takes specs for arguments or results of a function: a list has one for each.
template <class... Parts>
std::vector<P> specs_of(const std::tuple<Parts...>& trees, const Prefix<P>& specs,
                        const char* what) {
  std::vector<P> out;
  append_prefix(trees, specs, out, what);
  return out;
}
template <class Result>
std::vector<P> result_specs(const Result& result, const Prefix<P>& specs) {
  if constexpr (is_tuple<Result>::value) {
    std::vector<P> out;
    append_prefix(result, specs, out, "shard_map: out");
    return out;
  } else {
    return specs_of(std::tuple<const Result&>(result), specs, "shard_map: out");
  }
}

/// What `shard_map` returns.
template <class F>
class ShardMapped : public BraceCall<ShardMapped<F>, F> {
 public:
  ShardMapped(F f, Mesh mesh, ShardMapOptions options, Place place)
      : f_(std::move(f)), mesh_(std::move(mesh)), options_(std::move(options)), place_(place) {}
  template <class... A>
  auto invoke(A&&... arguments) const {
    return with_boxed<F>(
        [this]<class... B>(const B&... x) {
          const Flat<F, B...> flat(f_, x...);
          const Tensors y = detail::shard_map(
              flat,
              {mesh_, specs_of(std::tuple<const B&...>(x...), options_.in, "shard_map: in"),
               [&] { return result_specs(flat.like(), options_.out); }},
              leaves_of(x...), place_);
          return with_leaves(flat.like(), y);
        },
        std::forward<A>(arguments)...);
  }

 private:
  Shared<F> f_;
  Mesh mesh_;
  ShardMapOptions options_;
  Place place_;
};

}  // namespace detail

/// Returns f, written for one device's part of its arguments, on every device of the mesh at once:
/// whole arrays come in cut as `options.in` says, and its results are put together as `options.out`
/// says. Calls, taps and blocks in f belong to the device that runs them. May be differentiated,
/// batched, and used inside `jit` among other operations; not inside another shard_map. As
/// jax.shard_map with check_vma=False. When it is called it throws what f throws while it is
/// traced, and TypeError where a spec does not fit its array, by name, number of axes or extent,
/// and inside another one.
///
///   auto share = [](pn::Tensor part) { return part / pn::psum(pn::sum(part), "x"); };
///   auto shares = pn::shard_map(share, pn::Mesh({{"x", 2}}),
///                               {.in = pn::P("x"), .out = pn::P("x")});
///   const pn::Tensor y = shares(pn::tensor<float>({1, 2, 3, 2}));  // [0.125 0.25 0.375 0.25]
template <class F>
detail::ShardMapped<F> shard_map(F f, Mesh mesh, ShardMapOptions options = {},
                                 Place place = Place::current()) {
  return {std::move(f), std::move(mesh), std::move(options), place};
}

struct PmapOptions {
  std::string axis_name = "devices";  // for collectives
  std::vector<int> devices =
      {};  // default: the first ones, as many as the mapped axis has elements
};

namespace detail {
POSTERN_API Tensors pmap(const TensorFunction& f, const PmapOptions& options, const Tensors& x,
                         const Place& place);
/// What `pmap` returns.
template <class F>
using Pmapped = Applied<F, PmapOptions, &pmap>;
}  // namespace detail

/// Returns f for each element of the arguments' first axis, on a device of its own; results have
/// that axis in front. The short form of `shard_map` over a mesh of one axis. As jax.pmap. When it
/// is called it throws TypeError as that does, for leaves without a first axis or with several
/// lengths of it, and where there are not as many devices.
template <class F>
detail::Pmapped<F> pmap(F f, PmapOptions options = {}, Place place = Place::current()) {
  return {std::move(f), std::move(options), place};
}

// --- collectives ---
// Inside `shard_map` and `pmap`, with the name of a mesh axis, inside `vmap` with its axis_name, or
// with several names of either kind (the first is the slowest to change). The shapes are those of
// one device's part, or of one element: where devices are said below, a vmap has elements. What is
// cut, sent to some or told apart by places (`all_to_all`, `ppermute`, `broadcast` and those after
// it) takes several names only if all are of a mesh. Dtypes are kept.
//
// Every function throws TypeError for names that are none of these, listing those that there are,
// and for axes, extents, places of devices and dtypes other than said.

/// Returns Sum, mean, greatest, least over the devices along these axes; of numbers of any dtype
/// (max and min: no complex ones), of x's type, but for the mean of integers, which is f32. Every
/// device gets it. Where several devices have the greatest (least) value they share its cotangent.
POSTERN_API Tensor psum(const Operand& x, const AxisNames& axes);
POSTERN_API Tensor pmean(const Operand& x, const AxisNames& axes);
POSTERN_API Tensor pmax(const Operand& x, const AxisNames& axes);
POSTERN_API Tensor pmin(const Operand& x, const AxisNames& axes);

/// Returns the parts of all devices, on a new axis at `axis`, or with `tiled` one after another
/// along the axis that is there. Every device gets it.
///
///   auto all = pn::vmap([](pn::Tensor x) { return pn::all_gather(x, "i"); }, {.axis_name = "i"});
///   const pn::Tensor y = all(pn::tensor<float>({1, 2}));  // [[1 2] [1 2]]
POSTERN_API Tensor all_gather(const Operand& x, const AxisNames& axes, std::int64_t axis = 0,
                              bool tiled = false, Place place = Place::current());

/// Returns psum, of which every device keeps its own piece of `axis`: with `tiled` the extent is
/// divided by the number of devices, which must go into it; else it must equal that number, and the
/// axis is gone. JAX's psum_scatter.
POSTERN_API Tensor reduce_scatter(const Operand& x, const AxisNames& axes, std::int64_t axis = 0,
                                  bool tiled = false, Place place = Place::current());

/// Cuts x along `split_axis`, sends each device its piece, and joins what came along `concat_axis`
/// (jax.lax.all_to_all with tiled=True). The extent of `split_axis` is divided by the number of
/// devices, which must go into it, that of `concat_axis` multiplied.
POSTERN_API Tensor all_to_all(const Operand& x, const AxisNames& axes, std::int64_t split_axis,
                              std::int64_t concat_axis, Place place = Place::current());

/// Sends by pairs: (from, to) sends x of device `from` along the axis to device `to`; who is sent
/// nothing gets zeros. No device may send or be sent to twice.
///
///   auto shifted = pn::vmap(
///       [](pn::Tensor x) { return pn::ppermute(x, "i", {{0, 1}, {1, 2}}); }, {.axis_name = "i"});
///   const pn::Tensor y = shifted(pn::tensor<float>({1, 2, 3}));  // [0 1 2]
POSTERN_API Tensor ppermute(const Operand& x, const AxisNames& axes,
                            const std::vector<std::pair<int, int>>& pairs,
                            Place place = Place::current());

/// Returns x of the device at place `root` along the axes, for all. Moves the bytes as they are, of
/// any dtype.
POSTERN_API Tensor broadcast(const Operand& x, const AxisNames& axes, int root = 0,
                             Place place = Place::current());

/// Returns x of device `root`, of which every device gets its own piece of `axis`: with `tiled` the
/// extent is divided by the number of devices, which must go into it; else it must equal that
/// number, and the axis is gone. What the others have in x counts for its type alone.
POSTERN_API Tensor scatter_from(const Operand& x, const AxisNames& axes, int root = 0,
                                std::int64_t axis = 0, bool tiled = false,
                                Place place = Place::current());

/// Returns the parts of all devices at device `root`, on a new axis at `axis`, or with `tiled` one
/// after another along the axis that is there. The others get zeros of the same type.
POSTERN_API Tensor gather_to(const Operand& x, const AxisNames& axes, int root = 0,
                             std::int64_t axis = 0, bool tiled = false,
                             Place place = Place::current());

/// Sends device `to` the x of device `from`; all others keep theirs.
POSTERN_API Tensor send_recv(const Operand& x, const AxisNames& axes, int from, int to,
                             Place place = Place::current());

/// Holds devices together: no device goes on with ordered effects (calls, taps, prints, collectives
/// over processes) behind it before all along the axes have come to it. An ordered effect itself.
POSTERN_API void pbarrier(const AxisNames& axes, Place place = Place::current());

/// Returns where along these axes the device is, s32[].
POSTERN_API Tensor axis_index(const AxisNames& axes, Place place = Place::current());
/// Returns the number of devices along them.
POSTERN_API std::int64_t axis_size(const AxisNames& axes, Place place = Place::current());

}  // namespace postern
