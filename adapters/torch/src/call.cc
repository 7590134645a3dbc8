// A torch function in a program. Its rule in forward mode is a linear call, whose transpose is its
// rule in reverse mode; all of these are torch functions too, with such rules of their own.
#include <ATen/ops/empty.h>
#include <torch/csrc/jit/api/module.h>

#include "bound.h"
#include "site.h"
#include "types.h"

namespace postern::torch {

namespace {

using Tensors = std::vector<Tensor>;
using Types = std::vector<Type>;

Types types_of(const Tensors& tensors) {
  Types types;
  for (const Tensor& t : tensors) types.push_back({t.dtype(), t.dims()});
  return types;
}

CallOptions options_of(const Site& site, const char* what, Effect effect) {
  const Options& o = site.options;
  CallOptions call;
  call.name = o.name + what;
  call.effect = effect;
  call.timeout = o.timeout;
  call.warn_after = o.warn_after;
  call.device = o.device;
  call.vmap = o.vmap.value_or(site.own_vmap ? VmapMethod::expand_dims : VmapMethod::sequential);
  return call;
}

template <class T>
std::vector<T> joined(std::vector<T> a, const std::vector<T>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

template <class T>
std::vector<T> chosen(const std::vector<T>& all, const std::vector<bool>& which) {
  std::vector<T> some;
  for (std::size_t i = 0; i < which.size(); ++i)
    if (which[i]) some.push_back(all[i]);
  return some;
}

/// The function, or a derivative of it, as a function of tensors.
struct Derived {
  SitePtr site;
  Path path;
  Types in, out;  // of torch's function; a derivative has a ticket behind its operands
  Movable movable;

  bool derivative() const { return !path.empty(); }
  Derived then(Step step) const {
    const Movable d = derivative_of(movable, step);
    Path longer = path;
    longer.push_back(step);
    const bool pull = step == Step::pull;
    const Types inputs = chosen(in, movable.in), outputs = chosen(out, movable.out);
    return {site, longer, joined(in, pull ? outputs : inputs), pull ? inputs : outputs, d};
  }
};

/// The host's results; of the function itself with a ticket behind them if `keep`.
Tensors enter(const Derived& d, const Tensors& x, bool keep) {
  const Site& site = *d.site;
  const auto options = [&](const char* what, Effect effect) {
    CallOptions o = options_of(site, what, effect);
    // A ticket's axes tell for which elements the function ran. The host expands what it gets.
    const bool ticket = keep || d.derivative();
    if (ticket && o.vmap == VmapMethod::broadcast_all) o.vmap = VmapMethod::expand_dims;
    return o;
  };
  if (d.derivative())
    return call(options(d.path.back() == Step::pull ? " vjp" : " jvp", Effect::pure), d.out,
                host_derivative(d.site, d.path, d.in, d.out), x);
  Types out = d.out;
  if (keep) out.push_back(type<std::int64_t>());
  return call(options("", site.options.effect), out, host_function(d.site, keep), x);
}

Tensors apply(const Derived& d, const Tensors& x, bool keep);

/// The tangents of d's movable results, linear in those of its movable operands. Operands are d's,
/// the ticket, and the tangents.
Tensors push(const Derived& d, const Tensors& x, const Tensor& ticket, const Tensors& dx) {
  const std::size_t n = x.size();
  const auto body = [d, n](const Tensors& all) {
    const auto at = all.begin() + static_cast<std::ptrdiff_t>(n);
    const Tensors kept(all.begin(), at + 1), moved(at + 1, all.end());
    return linear_call(
        [d](const Tensors& r, const Tensors& t) {
          const Tensors fixed(r.begin(), r.end() - 1);
          return enter(d.then(Step::push), joined(joined(fixed, t), {r.back()}), false);
        },
        [d](const Tensors& r, const Tensors& ct) {
          const Tensors fixed(r.begin(), r.end() - 1);
          return apply(d.then(Step::pull), joined(joined(fixed, ct), {r.back()}), false);
        },
        kept, moved, d.site->fn.place());
  };
  const auto rule = [d, n](const std::tuple<Tensors>& all, const std::tuple<Tensors>& moves) {
    const Tensors &v = std::get<0>(all), &dv = std::get<0>(moves);
    const auto at = static_cast<std::ptrdiff_t>(n);
    const Tensors fixed(v.begin(), v.begin() + at), t(v.begin() + at + 1, v.end());
    const Tensors dfixed(dv.begin(), dv.begin() + at), dt(dv.begin() + at + 1, dv.end());
    const Tensors y = push(d, fixed, v[n], t);
    // d's own operands that cannot be differentiated have no tangent here either.
    const Tensors dy =
        push(d.then(Step::push), joined(fixed, t), v[n], joined(chosen(dfixed, d.movable.in), dt));
    return std::pair(y, dy);
  };
  return custom_jvp(body, rule, d.site->fn.place())(joined(joined(x, {ticket}), dx));
}

/// Differentiable. x: d's operands, and of a derivative the ticket.
Tensors apply(const Derived& d, const Tensors& x, bool keep) {
  const auto body = [d, keep](const Tensors& v) { return enter(d, v, keep); };
  const auto rule = [d, keep](const std::tuple<Tensors>& all, const std::tuple<Tensors>& moves) {
    const Tensors &v = std::get<0>(all), &dv = std::get<0>(moves);
    const bool first = !d.derivative();
    Tensors y = apply(d, v, first);
    Tensor ticket = first ? y.back() : v.back();
    const Tensors operands(v.begin(), v.end() - (first ? 0 : 1));
    const Tensors pushed = push(d, operands, ticket, chosen(dv, d.movable.in));
    if (first && !keep) y.pop_back();
    Tensors dy(y.size());
    for (std::size_t i = 0, next = 0; i < d.out.size(); ++i)
      if (d.movable.out[i]) dy[i] = pushed[next++];
    return std::pair(y, dy);
  };
  return custom_jvp(body, rule, d.site->fn.place())(x);
}

void check_types(const Options& options, const char* what, const Types& types) {
  for (std::size_t i = 0; i < types.size(); ++i)
    if (!torch_has(types[i].dtype))
      throw TypeError("torch call '" + options.name + "': " + what + " " + std::to_string(i) +
                      " is " + to_string(types[i]) + ", and torch has no tensors of " +
                      std::string(to_string(types[i].dtype)));
}

std::string counts_text(const Erased& f) {
  std::string text;
  for (std::size_t k = 0; k <= detail::most; ++k)
    if (f.takes(k)) text += (text.empty() ? "" : ", ") + std::to_string(k);
  return text.empty() ? "none of at most " + std::to_string(detail::most) : text;
}

void check_call(const Options& options, const Function& fn, const Types& in, const Types& out) {
  const Erased& f = *fn.erased();
  check_types(options, "operand", in);
  check_types(options, "result", out);
  const std::string at = " (at " + to_string(fn.place()) + ")";
  const std::size_t count = in.size() + (f.fills ? out.size() : 0), bound = f.parameters.size();
  if (count < bound || !f.takes(count - bound))
    throw TypeError("torch call '" + options.name + "': the function takes " + counts_text(f) +
                    " tensors, got " + std::to_string(count) +
                    (bound ? " with its " + std::to_string(bound) + " parameters" : "") +
                    (f.fills ? " with the results that it fills" : "") + at);
  for (std::size_t i = 0; i < bound; ++i) {
    const detail::Parameter& p = f.parameters[i];
    const Type has = type_of(p.tensor);
    if (has.dtype != in[i].dtype || has.dims != in[i].dims)
      throw TypeError("torch call '" + options.name + "': operand " + std::to_string(i) + " is " +
                      to_string(in[i]) + ", the parameter " + p.name + " is " + to_string(has) +
                      at);
  }
  const bool in_front =
      options.vmap == VmapMethod::expand_dims || options.vmap == VmapMethod::broadcast_all;
  if (bound && in_front)
    throw TypeError("torch call '" + options.name +
                    "': a module's parameters have no batch axis, so with_parameters goes with the "
                    "vmap methods sequential and parallel" +
                    at);
}

/// By name, and what a module has under several names once, by the first.
std::vector<detail::Parameter> distinct(std::vector<detail::Parameter> all) {
  std::sort(all.begin(), all.end(),
            [](const detail::Parameter& a, const detail::Parameter& b) { return a.name < b.name; });
  std::vector<detail::Parameter> once;
  for (detail::Parameter& p : all)
    if (std::none_of(once.begin(), once.end(),
                     [&](const detail::Parameter& q) { return q.tensor.is_same(p.tensor); }))
      once.push_back(std::move(p));
  return once;
}

}  // namespace

Function::Function(const ::torch::jit::Module& module, Place place) : place_(place) {
  auto erased = std::make_shared<detail::Erased>();
  erased->list = true;
  erased->scripted = true;
  erased->run = [m = ::torch::jit::Module(module)](const TorchTensors& x) mutable {
    std::vector<c10::IValue> stack(x.begin(), x.end());
    const c10::IValue y = m.forward(std::move(stack));
    TorchTensors out;
    const std::function<void(const c10::IValue&)> add = [&](const c10::IValue& value) {
      if (value.isTensor())
        out.push_back(value.toTensor());
      else if (value.isTuple())
        for (const c10::IValue& part : value.toTupleRef().elements()) add(part);
      else if (value.isList())
        for (const c10::IValue& part : value.toListRef()) add(part);
      else
        throw Error(ErrorCode::bad_result, "the scripted module returned a " + value.tagKind() +
                                               ", which holds no tensors");
    };
    add(y);
    return out;
  };
  erased_ = std::move(erased);
}

std::vector<Tensor> detail::call(const Options& options, const std::vector<Type>& out,
                                 const Function& fn, const std::vector<Tensor>& operands) {
  const Types in = types_of(operands);
  check_call(options, fn, in, out);
  const auto site = std::make_shared<const Site>(options, fn, in, out);
  const Derived d{site, {}, in, out, site->movable};
  const auto any = [](const std::vector<bool>& which) {
    return std::find(which.begin(), which.end(), true) != which.end();
  };
  if (fn.erased()->fills || !any(d.movable.in) || !any(d.movable.out))
    return enter(d, operands, false);
  return apply(d, operands, false);
}

std::vector<detail::Parameter> detail::parameters_of(const ::torch::jit::Module& module) {
  std::vector<Parameter> all;
  for (const auto& p : module.named_parameters(true)) all.push_back({p.name, p.value});
  return all;
}

Function detail::bound(const Function& fn, std::vector<Parameter> parameters) {
  parameters = distinct(std::move(parameters));
  auto erased = std::make_shared<Erased>(*fn.erased());
  erased->locks = locks_for(parameters);
  erased->parameters = std::move(parameters);
  return Function(std::shared_ptr<const Erased>(std::move(erased)), fn.place());
}

std::map<std::string, Tensor> detail::values_of(const std::vector<Parameter>& parameters) {
  std::map<std::string, Tensor> values;
  for (const Parameter& p : distinct(parameters)) {
    const at::Tensor dense = p.tensor.detach().contiguous();
    values.emplace(p.name, Tensor(type_of(dense), dense.data_ptr()));
  }
  return values;
}

void detail::store(const std::vector<Parameter>& all, const std::map<std::string, Tensor>& values) {
  const std::vector<Parameter> parameters = distinct(all);
  if (values.size() != parameters.size())
    throw TypeError("torch::store_parameters: the module has " + std::to_string(parameters.size()) +
                    " parameters, got " + std::to_string(values.size()));
  for (const Parameter& p : parameters) {
    const auto found = values.find(p.name);
    const Type type = type_of(p.tensor);
    if (found == values.end() || found->second.dtype() != type.dtype ||
        found->second.dims() != type.dims)
      throw TypeError("torch::store_parameters: the parameter " + p.name + " is " +
                      to_string(type) + ", got " +
                      (found == values.end() ? "none" : to_string(found->second.type())));
  }
  for (const Parameter& p : parameters) {
    at::Tensor dense = at::empty(p.tensor.sizes(), p.tensor.options().requires_grad(false));
    values.at(p.name).read(dense.data_ptr());
    p.tensor.detach().copy_(dense);
  }
}

}  // namespace postern::torch
