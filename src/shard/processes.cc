// shard_map over processes, rewritten for the devices of this one.
//
// A result of such a shard_map that processes share out is kept as this process's part until
// something needs the whole: the next shard_map that cuts it alike takes the part, so that what a
// derivative puts aside moves nowhere.
#include "shard/processes.h"

#include <postern/indexing.h>
#include <postern/ops.h>
#include <postern/shard.h>

#include <algorithm>
#include <optional>

#include "cluster/cluster.h"
#include "core/site.h"
#include "shard/collective.h"
#include "shard/shard_map.h"
#include "trace/literal.h"
#include "transform/simplify.h"
#include "transform/walk.h"

namespace postern {

namespace {

using clusters::Collective;
using clusters::Operation;
using Names = std::vector<std::string>;

/// A mesh's axes of processes, and the mesh of the devices of one process.
struct Split {
  explicit Split(const Mesh& whole) : mesh(whole) {
    std::vector<MeshAxis> axes;
    std::int64_t count = 1;
    for (const MeshAxis& a : mesh.axes()) {
      (a.of_processes ? across : axes).push_back(a);
      if (a.of_processes) count *= a.size;
    }
    const int size = clusters::Cluster::get().size();
    check(count == size, "{}: its axes make a grid of {} processes, the cluster has {}",
          to_string(mesh), count, size);
    if (!axes.empty()) here.emplace(std::move(axes), mesh.devices());
  }
  bool is_across(const std::string& name) const {
    return std::ranges::find(across, name, &MeshAxis::name) != across.end();
  }

  const Mesh mesh;
  std::vector<MeshAxis> across;
  std::optional<Mesh> here;  // none: a process takes part with one device
};

/// The names of axes of processes, which must come before the others, and those.
struct Cut {
  Names across, here;
};
Cut cut_of(const Split& split, const Names& names, const char* what) {
  Cut out;
  for (const std::string& name : names) {
    if (!split.is_across(name)) {
      out.here.push_back(name);
      continue;
    }
    check(out.here.empty(), "{}: axis '{}' is one of processes and must come before '{}'", what,
          name, fmt::join(out.here, "', '"));
    out.across.push_back(name);
  }
  return out;
}

Collective over(const Split& split, Operation operation, const Names& names) {
  Collective c;
  c.operation = operation;
  for (const MeshAxis& a : split.across) c.grid.push_back(a.size);
  for (const std::string& name : names)
    c.along.push_back(std::ranges::find(split.across, name, &MeshAxis::name) -
                      split.across.begin());
  return c;
}
std::int64_t count_of(const Collective& c) {
  std::int64_t n = 1;
  for (const std::int64_t a : c.along) n *= c.grid[static_cast<std::size_t>(a)];
  return n;
}

/// The collective itself, at this process.
Tensor meet(Collective c, const char* name, const Tensor& x, std::int64_t axis = 0,
            std::int64_t other = 0) {
  const DType dtype = x.dtype();
  check(bit_width(dtype) >= 8, "{} over processes: {} has elements of less than a byte", name,
        to_string(x.type()));
  const bool reduces = c.operation == Operation::sum || c.operation == Operation::max ||
                       c.operation == Operation::min || c.operation == Operation::scatter;
  if (reduces && !clusters::reduces(dtype, c.operation)) {
    check(byte_width(dtype) == 1, "{} over processes: {} is no number that it knows", name,
          to_string(x.type()));
    return convert(meet(std::move(c), name, convert(x, DType::f32), axis, other), dtype);
  }
  c.axis = axis;
  c.other = other;
  Type y{dtype, x.dims()};
  const std::int64_t n = count_of(c);
  const auto at_axis = static_cast<std::size_t>(axis), at_other = static_cast<std::size_t>(other);
  if (c.operation == Operation::gather) y.dims[at_axis] *= n;
  if (c.operation == Operation::scatter || c.operation == Operation::exchange) y.dims[at_axis] /= n;
  if (c.operation == Operation::exchange) y.dims[at_other] *= n;
  return at_processes(c, name, std::span(&x, 1), {y}).front();
}

Tensor index_over(const Split& split, const Names& names) {
  return at_processes(over(split, Operation::index, names), "axis_index", {},
                      {Type{DType::s32, {}}})
      .front();
}

/// What is held of a value: the whole, or this process's part of it, cut as `spec` says.
struct Held {
  Tensor tensor;
  P spec = P();
  std::shared_ptr<const Split> split = nullptr;  // null: the whole
};

/// Which axes of an array processes cut, and how its part lies on the devices of this one.
struct Lies {
  Lies(const Split& split, const P& spec, std::int64_t rank) {
    std::vector<Names> parts = spec.parts();
    parts.resize(static_cast<std::size_t>(rank));
    for (const Names& names : parts) {
      Cut cut = cut_of(split, names, "shard_map");
      part.push_back(cut.here);
      if (!cut.across.empty()) apart.push_back({});
      apart.push_back(std::move(cut.here));
      across.push_back(std::move(cut.across));
    }
  }
  bool whole() const { return std::ranges::all_of(across, &Names::empty); }

  std::vector<Names> across;       // by axis
  std::vector<Names> part, apart;  // of the part; with an axis for processes before each cut one
};

/// f on each device of this process.
Tensor on_each(const Split& split, const std::function<Tensor(Tensor)>& f,
               const std::vector<Names>& in, const std::vector<Names>& out, const Tensor& x) {
  if (!split.here) return f(x);
  return detail::shard_map([&](std::span<const Tensor> parts) { return Tensors{f(parts[0])}; },
                           {*split.here, {P(in)}, [&] { return std::vector<P>{P(out)}; }}, {x},
                           PlaceScope::current())
      .front();
}

Tensor whole_of(const Held& value) {
  if (!value.split) return value.tensor;
  const Split& split = *value.split;
  const Lies lies(split, value.spec, value.tensor.rank());
  if (lies.whole()) return value.tensor;
  Dims dims = value.tensor.dims();
  const auto gathered = [&](Tensor x) {
    for (std::size_t a = 0, at = 0; a < lies.across.size(); ++a, ++at) {
      if (lies.across[a].empty()) continue;
      const auto axis = static_cast<std::int64_t>(at++);
      x = meet(over(split, Operation::gather, lies.across[a]), "shard_map", expand_dims(x, axis),
               axis);
    }
    return x;
  };
  const Tensor apart = on_each(split, gathered, lies.part, lies.apart, value.tensor);
  for (std::size_t a = 0; a < dims.size(); ++a)
    dims[a] *= count_of(over(split, Operation::gather, lies.across[a]));
  return reshape(apart, dims);
}

Tensor part_of(const Tensor& whole, const Split& split, const P& spec) {
  const Lies lies(split, spec, whole.rank());
  if (lies.whole()) return whole;
  Dims dims;
  for (std::size_t a = 0; a < lies.across.size(); ++a) {
    const std::int64_t n = count_of(over(split, Operation::index, lies.across[a]));
    if (!lies.across[a].empty()) dims.push_back(n);
    dims.push_back(whole.dims()[a] / n);
  }
  const auto taken = [&](Tensor x) {
    for (std::size_t a = 0; a < lies.across.size(); ++a) {
      if (lies.across[a].empty()) continue;
      std::vector<Operand> starts(x.dims().size(), Operand(std::int32_t{0}));
      starts[a] = Operand(index_over(split, lies.across[a]));
      Dims sizes = x.dims();
      sizes[a] = 1;
      x = squeeze(dynamic_slice(x, starts, sizes), {static_cast<std::int64_t>(a)});
    }
    return x;
  };
  return on_each(split, taken, lies.apart, lies.part, reshape(whole, dims));
}

/// Writes programs anew; inside the body of a shard_map over processes with its mesh split.
class Expansion {
 public:
  explicit Expansion(std::shared_ptr<const Split> inside = nullptr) : split_(std::move(inside)) {}

  Tensors run(const Program& program, std::span<const Tensor> inputs) const;

 private:
  std::vector<Held> equation(const Equation& e, std::span<const Held> operands) const;
  std::vector<Held> map(const Equation& e, std::span<const Held> operands) const;
  Tensors collective(const Equation& e, const Tensors& x) const;
  ParamsPtr params(const Equation& e) const;
  ProgramPtr program(const ProgramPtr& p) const;

  const std::shared_ptr<const Split> split_;
};

bool over_processes(const Equation& e) {
  return e.primitive == &shard_map_p && spans_processes(as<ShardMapParams>(*e.params).mesh);
}

std::vector<Held> held(Tensors&& tensors) {
  std::vector<Held> out;
  for (Tensor& t : tensors) out.push_back({std::move(t)});
  return out;
}

Tensors Expansion::run(const Program& program, std::span<const Tensor> inputs) const {
  std::vector<Held> env(program.types.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) env[at(program.inputs[i])] = {inputs[i]};
  const auto whole = [&](ValueId v) -> const Held& {
    Held& value = env[at(v)];
    if (value.split) value = {whole_of(value)};
    return value;
  };
  for (const Equation& e : program.equations) {
    const PlaceScope::Replace here(e.place);
    std::vector<Held> operands;
    for (const ValueId v : e.operands)
      operands.push_back(over_processes(e) ? env[at(v)] : whole(v));
    std::vector<Held> results = equation(e, operands);
    for (int i = 0; i < e.results; ++i) env[at(e.first + i)] = std::move(results[at(i)]);
  }
  Tensors out;
  for (const ValueId v : program.outputs) out.push_back(whole(v).tensor);
  return out;
}

std::vector<Held> Expansion::equation(const Equation& e, std::span<const Held> operands) const {
  if (over_processes(e)) return map(e, operands);
  Tensors x;
  for (const Held& value : operands) x.push_back(value.tensor);
  if (split_ && (e.primitive->meets || e.primitive == &axis_index_p)) return held(collective(e, x));
  if (split_ && e.primitive->site) {  // which sees the mesh of this process
    SiteSpec site = *e.primitive->site(e.params.get());
    site.mesh = split_->here ? std::make_shared<const Mesh>(*split_->here) : nullptr;
    site.partitioned = std::nullopt;
    site.cut = std::nullopt;
    site.whole = {};
    return held(bind_n(*e.primitive,
                       make_params(SiteParams{std::make_shared<const SiteSpec>(std::move(site))}),
                       x));
  }
  return held(bind_n(*e.primitive, params(e), x));
}

ParamsPtr Expansion::params(const Equation& e) const {
  if (!e.params) return e.params;
  std::vector<ProgramPtr> programs = programs_of(*e.params);
  const bool concerned = std::ranges::any_of(programs, [&](const ProgramPtr& p) {
    return split_ != nullptr || any_equation(*p, over_processes);
  });
  if (!concerned) return e.params;
  check(e.primitive->with_programs != nullptr, "{}: what is over processes cannot be inside of it",
        e.primitive->name);
  for (ProgramPtr& p : programs) p = program(p);
  return e.primitive->with_programs(e.params.get(), programs);
}

ProgramPtr Expansion::program(const ProgramPtr& p) const {
  const Closed closed = trace_inner("processes", p->input_types(),
                                    [&](std::span<const Tensor> x) { return run(*p, x); });
  check(closed.captures.empty(), "a program over processes uses a tensor from outside of it");
  Program out = *closed.program;
  out.name = p->name;
  return std::make_shared<const Program>(std::move(out));
}

std::vector<Held> Expansion::map(const Equation& e, std::span<const Held> operands) const {
  check(!split_, "shard_map inside shard_map: a device's part cannot be cut again");
  const auto& p = as<ShardMapParams>(*e.params);
  const auto split = std::make_shared<const Split>(p.mesh);
  const auto here_of = [&](const P& spec) {
    std::vector<Names> out;
    for (const Names& names : spec.parts()) out.push_back(cut_of(*split, names, "shard_map").here);
    return P(std::move(out));
  };
  Tensors parts;
  std::vector<P> in, out;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const Held& value = operands[i];
    const bool fits = value.split && value.split->mesh == p.mesh && value.spec == p.in[i];
    parts.push_back(fits ? value.tensor : part_of(whole_of(value), *split, p.in[i]));
    in.push_back(here_of(p.in[i]));
  }
  for (const P& spec : p.out) out.push_back(here_of(spec));
  const Expansion inside(split);
  const auto body = [&](std::span<const Tensor> x) { return inside.run(*p.body, x); };
  const Tensors y =
      split->here ? detail::shard_map(body, {*split->here, in, [&] { return out; }}, parts, e.place)
                  : body(parts);
  std::vector<Held> results;
  for (std::size_t i = 0; i < y.size(); ++i) results.push_back({y[i], p.out[i], split});
  return results;
}

Operation operation_of(const Primitive* primitive) {
  constexpr std::pair<const Primitive*, Operation> all[] = {{&psum_p, Operation::sum},
                                                            {&pmax_p, Operation::max},
                                                            {&pmin_p, Operation::min},
                                                            {&all_gather_p, Operation::gather},
                                                            {&reduce_scatter_p, Operation::scatter},
                                                            {&all_to_all_p, Operation::exchange},
                                                            {&ppermute_p, Operation::permute},
                                                            {&axis_index_p, Operation::index}};
  const auto found =
      std::ranges::find(all, primitive, &std::pair<const Primitive*, Operation>::first);
  check(found != std::end(all), "{} is not done over processes", primitive->name);
  return found->second;
}

/// Along axes of both kinds: inside the process by XLA, between processes by their meeting.
Tensors Expansion::collective(const Equation& e, const Tensors& x) const {
  const auto& p = as<CollectiveParams>(*e.params);
  const Operation operation = operation_of(e.primitive);
  const char* const name = e.primitive->name;
  const auto inside = [&](Names names, const Tensors& operands) {
    CollectiveParams q = p;
    if (!split_->here) return operands.front();
    q.mesh = *split_->here;
    q.axes = std::move(names);
    return bind1(*e.primitive, make_params(std::move(q)), operands);
  };
  const auto between = [&](const Names& names, const Tensor& operand) {
    Collective c = over(*split_, operation, names);
    c.pairs = p.pairs;
    return meet(std::move(c), name, operand, p.axis, p.other);
  };
  const auto is_across = [&](const std::string& axis) { return split_->is_across(axis); };
  if (operation == Operation::index) {
    Tensor index = full_of({Number::Kind::integer, 0, 0, 0}, Type{DType::s32, {}});
    for (const std::string& axis : p.axes)
      index = index * static_cast<std::int32_t>(p.mesh.size(axis)) +
              (is_across(axis) ? index_over(*split_, {axis}) : inside({axis}, {}));
    return {index};
  }
  if (std::ranges::none_of(p.axes, is_across)) return {inside(p.axes, x)};
  if (std::ranges::all_of(p.axes, is_across)) return {between(p.axes, x[0])};
  check(operation != Operation::exchange && operation != Operation::permute,
        "{} along '{}': axes of processes and of devices together; name those of one kind", name,
        fmt::join(p.axes, "', '"));
  Names axes = p.axes;
  if (operation == Operation::gather) std::ranges::reverse(axes);  // the last changes fastest
  Tensor y = x[0];
  for (const std::string& axis : axes)
    y = is_across(axis) ? between({axis}, y) : inside({axis}, {y});
  return {y};
}

}  // namespace

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
          {"pairs", pairs}};
}

namespace {

/// A place at which all processes come to the end of their runs, with every device that took part.
void end_together(const Program& program) {
  Collective end;
  end.grid = {clusters::Cluster::get().size()};
  end.along = {0};
  const auto here = [&](std::span<const Tensor>) { return at_processes(end, "end", {}, {}); };
  for (const Mesh& mesh : meshes_of(program)) {
    if (!spans_processes(mesh)) continue;
    const Split split(mesh);
    if (!split.here) continue;
    detail::shard_map(here, {*split.here, {}, [] { return std::vector<P>(); }}, {}, Place());
    return;
  }
  here({});
}

}  // namespace

ProgramPtr with_processes_expanded(const ProgramPtr& program) {
  if (!any_equation(*program, over_processes)) return program;
  const Closed closed =
      trace_program("processes", program->input_types(), [&](std::span<const Tensor> x) {
        Tensors y = Expansion().run(*program, x);
        end_together(*program);
        return y;
      });
  check(closed.captures.empty(), "a program over processes uses a tensor from outside of it");
  Program out = *closed.program;
  out.name = program->name;
  return simplify(out);
}

}  // namespace postern
