// Collectives of a shard_map over processes: which of a mesh's axes XLA does, and which the
// processes' rendezvous.
#include <postern/arrange.h>
#include <postern/ops.h>
#include <postern/shard.h>

#include <algorithm>

#include "core/lists.h"
#include "shard/collective.h"
#include "shard/expansion.h"
#include "trace/literal.h"
#include "trace/trace.h"

namespace postern::internal {

namespace {

using clusters::Collective;
using clusters::Operation;

Operation operation_of(const Primitive* primitive) {
  constexpr std::pair<const Primitive*, Operation> all[] = {
      {&psum_p, Operation::sum},
      {&pmax_p, Operation::max},
      {&pmin_p, Operation::min},
      {&all_gather_p, Operation::gather},
      {&reduce_scatter_p, Operation::scatter},
      {&all_to_all_p, Operation::exchange},
      {&ppermute_p, Operation::permute},
      {&pbroadcast_p, Operation::broadcast},
      {&scatter_from_p, Operation::scatter_from},
      {&gather_to_p, Operation::gather_to},
      {&axis_index_p, Operation::index},
      {&axis_count_p, Operation::count}};
  const auto found =
      std::ranges::find(all, primitive, &std::pair<const Primitive*, Operation>::first);
  check(found != std::end(all), "{} is not done over processes", primitive->name);
  return found->second;
}

/// One equation, rewritten: `inside` by XLA along axes of devices, `between` processes by their
/// rendezvous along axes of theirs.
class Rewriting {
 public:
  Rewriting(const Split& split, const Equation& e)
      : split_(split),
        e_(e),
        p_(as<CollectiveParams>(*e.params)),
        operation_(operation_of(e.primitive)) {
    for (const std::string& axis : p_.axes)
      (split_.is_across(axis) ? across_ : here_).push_back(axis);
  }

  Tensor operator()(const Tensors& x) const {
    if (operation_ == Operation::index) return index(p_.axes);
    if (operation_ == Operation::count) return count();
    const CollectiveAt as_given{.axis = p_.axis, .concat_axis = p_.concat_axis, .root = p_.root};
    if (across_.empty()) return inside(here_, x[0], as_given);
    if (here_.empty()) return between(across_, x[0], as_given);
    if (operation_ == Operation::exchange) return all_to_all(x[0]);
    if (operation_ == Operation::permute) return permute(x[0]);
    return one_by_one(x[0]);
  }

 private:
  Tensor inside(Names names, const Tensor& x, const CollectiveAt& where) const {
    if (!split_.here) return x;
    CollectiveParams here = p_;
    here.mesh = *split_.here;
    here.axes = std::move(names);
    here.axis = where.axis;
    here.concat_axis = where.concat_axis;
    here.root = where.root;
    return bind1(*e_.primitive, make_params(std::move(here)), {x});
  }
  Tensor between(const Names& names, const Tensor& x, const CollectiveAt& where) const {
    Collective c = across(split_, operation_, names);
    c.pairs = p_.pairs;
    return bind_collective(std::move(c), e_.primitive->name, x, where);
  }
  Tensor along(const std::string& axis, const Tensor& x, const CollectiveAt& where) const {
    return split_.is_across(axis) ? between({axis}, x, where) : inside({axis}, x, where);
  }

  /// Computes this device's place along the axes, row-major.
  Tensor index(const Names& names) const {
    Tensor place = zeros_of({DType::s32, {}});
    for (const std::string& axis : names) {
      place = place * static_cast<std::int32_t>(p_.mesh.size(axis));
      if (split_.is_across(axis))
        place = place + index_along(split_, {axis});
      else
        place =
            place + bind1(axis_index_p, make_params(CollectiveParams{*split_.here, {axis}}), {});
    }
    return place;
  }

  Tensor count() const {
    if (p_.user_knows) ProcessCountScope::note_dependence();
    const std::int64_t here = CollectiveParams{p_.mesh, here_}.count();
    const Tensor one = full_of(integer_number(1), Type{DType::s32, {}});
    const Tensor processes = across_.empty() ? one : count_along(split_, across_);
    return processes * static_cast<std::int32_t>(here);
  }

  /// Takes a place along all of the axes, row-major, apart into one along each of them.
  std::vector<std::int64_t> places(std::int64_t place) const {
    std::vector<std::int64_t> by_axis(p_.axes.size());
    for (std::size_t i = by_axis.size(); i-- > 0;) {
      const std::int64_t size = p_.mesh.size(p_.axes[i]);
      by_axis[i] = place % size;
      place /= size;
    }
    return by_axis;
  }

  /// Goes along one axis after another: what puts pieces together from the last on, which changes
  /// fastest, all else from the first.
  Tensor one_by_one(Tensor x) const {
    const std::vector<std::int64_t> roots = places(p_.root);
    const bool joins = operation_ == Operation::gather || operation_ == Operation::gather_to;
    for (std::size_t step = 0; step < p_.axes.size(); ++step) {
      const std::size_t i = joins ? p_.axes.size() - 1 - step : step;
      x = along(p_.axes[i], x, {p_.axis, p_.concat_axis, static_cast<int>(roots[i])});
    }
    return x;
  }

  /// An all_to_all along mesh axes of sizes n and m: [n*m*k, b], split along its first axis,
  /// becomes [n, m, k, b], in which each mesh axis exchanges along its own array axis. What came
  /// then goes in front of the axis that is joined, the second: [k, n, m, b], which is [k, n*m*b].
  Tensor all_to_all(const Tensor& x) const {
    Dims result = x.dims();
    result[size_of(p_.axis)] /= p_.count();
    Dims apart = result;
    for (std::size_t i = 0; i < p_.axes.size(); ++i)
      apart.insert(apart.begin() + p_.axis + static_cast<std::ptrdiff_t>(i),
                   p_.mesh.size(p_.axes[i]));
    Tensor y = reshape(x, apart);
    for (std::size_t i = 0; i < p_.axes.size(); ++i) {
      const std::int64_t axis = p_.axis + static_cast<std::int64_t>(i);
      y = along(p_.axes[i], y, {.axis = axis, .concat_axis = axis});
    }
    Dims order;
    const auto count = std::ssize(p_.axes);
    for (std::int64_t a = 0; a < x.rank(); ++a) {
      if (a == p_.concat_axis)
        for (std::int64_t i = 0; i < count; ++i) order.push_back(p_.axis + i);
      order.push_back(a < p_.axis ? a : a + count);
    }
    result[size_of(p_.concat_axis)] *= p_.count();
    return reshape(transpose(y, order), result);
  }

  /// The devices of a process first gather what all of them have. Each then sends the device of its
  /// own number on another process what that one is to get, whichever device here had it.
  Tensor permute(const Tensor& x) const {
    const Tensor all = bind1(all_gather_p, make_params(CollectiveParams{*split_.here, here_}),
                             {expand_dims(x, 0)});
    const std::int64_t devices = all.dims()[0];
    Collective c = across(split_, Operation::relay, across_);
    c.other = devices;  // no axis of the array, in a relay
    for (const auto& [from, to] : p_.pairs)
      c.pairs.emplace_back(relay_place(from, devices), relay_place(to, devices));
    check(bit_width(x.dtype()) >= 8, "ppermute over processes: {} has elements of less than a byte",
          to_string(x.type()));
    const Tensor operands[] = {all, index(here_)};
    return process_access.call(c, e_.primitive->name, std::span(operands), {x.type()}).front();
  }
  /// The place that a relay counts, process by process and there device by device, of a place along
  /// the axes as the collective names them.
  int relay_place(int place, std::int64_t devices) const {
    const std::vector<std::int64_t> along_axes = places(place);
    std::int64_t process = 0, device = 0;
    for (std::size_t i = 0; i < along_axes.size(); ++i) {
      std::int64_t& index = split_.is_across(p_.axes[i]) ? process : device;
      index = index * p_.mesh.size(p_.axes[i]) + along_axes[i];
    }
    return static_cast<int>(process * devices + device);
  }

  const Split& split_;
  const Equation& e_;
  const CollectiveParams& p_;
  const Operation operation_;
  Names across_, here_;
};

}  // namespace

Tensors collective_over(const Split& split, const Equation& e, const Tensors& x) {
  return {Rewriting(split, e)(x)};
}

Attributes process_attributes(const Collective& c) {
  std::vector<std::int64_t> pairs;
  for (const auto& [from, to] : c.pairs) {
    pairs.push_back(from);
    pairs.push_back(to);
  }
  return {{"operation", clusters::to_string(c.operation)},
          {"axis", c.axis},
          {"other", c.other},
          {"grid", c.grid},
          {"along", c.along},
          {"pairs", pairs},
          {"root", static_cast<std::int64_t>(c.root)}};
}

}  // namespace postern::internal
