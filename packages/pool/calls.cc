// Pools as calls of their cores.
#include "calls.h"

#include "core.h"

namespace postern::internal::pools {

namespace {

Type many(std::int64_t count, const Type& one) {
  Dims dims{count};
  dims.insert(dims.end(), one.dims.begin(), one.dims.end());
  return make_type(one.dtype, std::move(dims));
}

Transition template_of(const Core& pool, std::int64_t count) {
  const Type flags = type<bool>({count});
  return {abstract(many(count, pool.observation)),
          abstract(make_type(pool.options.rewards, {count})), abstract(flags), abstract(flags)};
}

CallOptions options_of(const Core& pool, const Place& place) {
  CallOptions options;
  options.name = pool.options.name;
  options.effect = Effect::ordered;
  options.timeout = pool.options.timeout;
  options.place = place;
  return options;
}

/// Throws TypeError, with the user's line, unless `ok`.
template <class... A>
void require(const Place& place, bool ok, fmt::format_string<A...> format, A&&... args) {
  if (!ok)
    throw TypeError(fmt::format(format, std::forward<A>(args)...) +
                    fmt::format(" (at {})", to_string(place)));
}

Type type_of(const Core& pool, const char* what, const Operand& x) {
  require(x.place(), x.tensor().has_value(), "{}: {}: the tensor is empty", pool.label, what);
  return x.tensor().type();
}

void check_operand(const Core& pool, const char* what, const Operand& x, const Type& expected) {
  const Type came = type_of(pool, what, x);
  require(x.place(), came.dtype == expected.dtype && came.dims == expected.dims,
          "{}: {} must be {}, {} came", pool.label, what, to_string(expected), to_string(came));
}

/// Takes what a simulator says of itself, which must fit the views of its functions.
void check_type(const std::string& label, const char* what, const Type& type, const Type& first,
                DType taken, std::int64_t element, const Place& place) {
  require(place, type.dtype == taken, "{}: the {} is {} by its type, its functions take {}", label,
          what, to_string(type), to_string(taken));
  require(place, type == first, "{}: the {} of element {} is {}, that of element 0 {}", label, what,
          element, to_string(type), to_string(first));
}

Callee stepping(std::shared_ptr<Core> pool, const Place& place) {
  return {[pool = std::move(pool)](const CallInfo& info, AnyView actions, AnyMutableView seen,
                                   AnyMutableView rewards, View<bool> terminated,
                                   View<bool> truncated) {
            pool->step(actions.data(),
                       {info, seen.data(), rewards.data(), terminated.data(), truncated.data()});
          },
          place};
}

/// The host functions share the core, so programs may outlive the pool.
class Calls final : public detail::PoolCalls {
 public:
  Calls(std::unique_ptr<detail::Simulators> simulators, const SimulatorOptions& options,
        const Place& place)
      : core_(std::make_shared<Core>(std::move(simulators), options)) {
    if (options.kept) core_->keep(place);
  }
  ~Calls() override { core_->close(); }

  Tensor reset(Place place) override {
    const auto enter = [core = core_](const CallInfo& info, AnyMutableView seen) {
      core->reset({info, seen.data(), nullptr, nullptr, nullptr});
    };
    return call(options_of(*core_, place), many(core_->size, core_->observation), {enter, place});
  }
  Transition step(const Operand& actions) override {
    check_operand(*core_, "step: actions", actions, many(core_->size, core_->action));
    return call(options_of(*core_, actions.place()), template_of(*core_, core_->size),
                stepping(core_, actions.place()), actions.tensor());
  }
  Pending<Transition> start_step(const Operand& actions) override {
    check_operand(*core_, "start_step: actions", actions, many(core_->size, core_->action));
    return start_call(options_of(*core_, actions.place()), template_of(*core_, core_->size),
                      stepping(core_, actions.place()), actions.tensor());
  }
  void send(const Operand& elements, const Operand& actions) override {
    const Type given = type_of(*core_, "send: elements", elements);
    require(elements.place(), given.dtype == DType::s32 && given.rank() == 1,
            "{}: send: elements must be s32[k], {} came", core_->label, to_string(given));
    check_operand(*core_, "send: actions", actions, many(given.dims[0], core_->action));
    const auto enter = [core = core_](const CallInfo& info, View<const std::int32_t> which,
                                      AnyView what) { core->send(info, which, what.data()); };
    call(options_of(*core_, elements.place()), std::tuple<>(), {enter, elements.place()},
         elements.tensor(), actions.tensor());
  }
  Arrived receive(std::int64_t k, Place place) override {
    require(place, k >= 1 && k <= core_->size, "{}: receive: 1 to {} elements, {} were asked for",
            core_->label, core_->size, k);
    const auto enter = [core = core_](const CallInfo& info, View<std::int32_t> elements,
                                      AnyMutableView seen, AnyMutableView rewards,
                                      View<bool> terminated, View<bool> truncated) {
      core->receive(elements.size(), elements.data(),
                    {info, seen.data(), rewards.data(), terminated.data(), truncated.data()});
    };
    const Arrived like{abstract(type<std::int32_t>({k})), template_of(*core_, k)};
    return call(options_of(*core_, place), like, {enter, place});
  }

 private:
  const std::shared_ptr<Core> core_;
};

}  // namespace

std::shared_ptr<detail::PoolCalls> make(std::unique_ptr<detail::Simulators> simulators,
                                        const SimulatorOptions& options, Place place) {
  const std::int64_t n = simulators->size();
  const std::string label = "pool " + internal::quoted(options.name);
  require(place, n >= 1 && n <= INT32_MAX,
          "{}: it must have 1 to 2147483647 elements, {} were asked", label, n);
  require(place, options.threads >= 0 && options.max_steps >= 0,
          "{}: threads and max_steps must not be negative, they are {} and {}", label,
          options.threads, options.max_steps);
  require(place, options.rewards == DType::f32 || options.rewards == DType::f64,
          "{}: rewards must be f32 or f64, not {}", label, to_string(options.rewards));
  for (std::int64_t e = 0; e < n; ++e) {
    check_type(label, "action", simulators->action(e), simulators->action(0),
               simulators->action_dtype, e, place);
    check_type(label, "observation", simulators->observation(e), simulators->observation(0),
               simulators->observation_dtype, e, place);
  }
  return std::make_shared<Calls>(std::move(simulators), options, place);
}

}  // namespace postern::internal::pools
