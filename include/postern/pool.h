// Pools of simulators: worlds that no compiler can take in, stepped by a compiled program as one
// function. Not part of postern.h. See docs/simulators.md.
//
//   pn::Pool<Walk> pool(32, {.seed = 7});
//   const auto [seen, rewards, terminated, truncated] = pool.step(actions);  // inside of jit
//
// A simulator is any class with
//
//   pn::Type action() const, observation() const;  // of one element; may be static
//   void reset(std::uint64_t seed, pn::View<float> observation);  // begins an episode
//   pn::Stepped step(pn::View<const float> action, pn::View<float> observation);
//
// where the views may be of any element types and the action may be a number. It need be neither
// copied nor moved. For checkpoints it has `std::string save() const` and `void
// load(std::string_view)`, or << and >>.
#pragma once
#include <postern/detail/api.h>
#include <postern/pending.h>
#include <postern/state.h>

#include <chrono>
#include <concepts>
#include <cstdint>
#include <exception>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace postern {

/// What a simulator's step says beside the observation. terminated: the episode has ended.
/// truncated: it is cut off here, and would have gone on.
struct Stepped {
  double reward = 0;
  bool terminated = false, truncated = false;
};

/// What a pool's step gives, with the elements in front: observations, rewards (of
/// SimulatorOptions::rewards) and two preds.
struct Transition {
  Tensor observations, rewards, terminated, truncated;
};

/// What Pool::receive gives: the numbers of the elements, s32[k] and rising, and what became of
/// them.
struct Arrived {
  Tensor elements;
  Transition transition;
};

struct SimulatorOptions {
  std::string name = "pool";   // of its calls, and of its state in checkpoints
  std::int64_t threads = 0;    // that step elements, the program's own among them; 0: one for each
                               // core that the process may use
  std::uint64_t seed = 0;      // with an element's number and its episode's it makes their seeds
  std::int64_t max_steps = 0;  // behind so many an episode is truncated; 0: never
  DType rewards = DType::f32;  // or f64
  bool kept = true;            // in checkpoints
  std::chrono::nanoseconds timeout{0};  // of each call, as CallOptions has it
};

/// A simulator of a pool threw: the cause of a CallbackError. No member throws.
class POSTERN_API PoolError : public Error {
 public:
  /// Has the code threw.
  PoolError(const std::string& text, std::int64_t element, std::exception_ptr cause)
      : Error(ErrorCode::threw, text), element_(element), cause_(std::move(cause)) {}
  /// Returns which element, the lowest of several, and what it threw.
  std::int64_t element() const { return element_; }
  const std::exception_ptr& cause() const { return cause_; }

 private:
  std::int64_t element_;
  std::exception_ptr cause_;
};

namespace detail {

/// Simulators whose type is forgotten.
class Simulators {
 public:
  virtual ~Simulators() = default;
  virtual std::int64_t size() const = 0;
  virtual Type action(std::int64_t element) const = 0;
  virtual Type observation(std::int64_t element) const = 0;
  virtual void reset(std::int64_t element, std::uint64_t seed, void* observation) = 0;
  virtual Stepped step(std::int64_t element, const void* action, void* observation) = 0;
  virtual bool can_save() const = 0;
  virtual std::string save(std::int64_t element) const = 0;
  virtual void load(std::int64_t element, std::string_view text) = 0;
  DType action_dtype{}, observation_dtype{};  // that its functions take
};

template <class P>
struct ActionTaken {
  static_assert(Element<P>,
                "postern: a simulator's step takes View<const T> or a number, then "
                "View<T>");
  static constexpr DType dtype = dtype_v<P>;
  static P make(const void* data, const Dims&, std::int64_t) {
    return *static_cast<const P*>(data);
  }
};
template <class T>
struct ActionTaken<View<const T>> {
  static constexpr DType dtype = dtype_v<T>;
  static View<const T> make(const void* data, const Dims& dims, std::int64_t size) {
    return {static_cast<const T*>(data), dims.data(), dims.size(), size};
  }
};

template <class S>
concept SavesItself = requires(const S& s, S& t, std::string_view text) {
  { s.save() } -> std::convertible_to<std::string>;
  t.load(text);
};

template <class S>
class SimulatorsOf final : public Simulators {
  using Parameters = typename Signature<decltype(&S::step)>::Parameters;
  static_assert(std::tuple_size_v<Parameters> == 2,
                "postern: a simulator's step takes an action "
                "and a view for the observation");
  using Taken = ActionTaken<std::decay_t<std::tuple_element_t<0, Parameters>>>;
  using Shown = std::decay_t<std::tuple_element_t<1, Parameters>>;
  using Seen = std::remove_pointer_t<decltype(std::declval<Shown>().data())>;
  struct alignas(64) Element {  // of a cache line for itself
    template <class Make>
    Element(const Make& make, std::int64_t e) : simulator(make(e)) {}
    S simulator;
  };

 public:
  template <class Make>
  SimulatorsOf(std::int64_t n, const Make& make) {
    action_dtype = Taken::dtype;
    observation_dtype = dtype_v<Seen>;
    for (std::int64_t e = 0; e < n; ++e) elements_.push_back(std::make_unique<Element>(make, e));
    if (elements_.empty()) return;
    action_ = at(0).action().dims;
    observation_ = at(0).observation().dims;
    for (const std::int64_t d : action_) action_size_ *= d;
    for (const std::int64_t d : observation_) observation_size_ *= d;
  }
  S& at(std::int64_t e) const { return elements_[static_cast<std::size_t>(e)]->simulator; }

  std::int64_t size() const override { return static_cast<std::int64_t>(elements_.size()); }
  Type action(std::int64_t e) const override { return at(e).action(); }
  Type observation(std::int64_t e) const override { return at(e).observation(); }
  void reset(std::int64_t e, std::uint64_t seed, void* seen) override {
    at(e).reset(seed, shown(seen));
  }
  Stepped step(std::int64_t e, const void* action, void* seen) override {
    return at(e).step(Taken::make(action, action_, action_size_), shown(seen));
  }
  bool can_save() const override { return SavesItself<S> || Streamable<S>; }
  std::string save(std::int64_t e) const override {
    if constexpr (SavesItself<S>) {
      return std::as_const(at(e)).save();
    } else if constexpr (Streamable<S>) {
      std::ostringstream text;
      text.precision(std::numeric_limits<long double>::max_digits10);
      text << at(e);
      return std::move(text).str();
    }
    return {};
  }
  void load(std::int64_t e, std::string_view text) override {
    if constexpr (SavesItself<S>) {
      at(e).load(text);
    } else if constexpr (Streamable<S>) {
      std::istringstream in{std::string(text)};
      if (!(in >> at(e))) unreadable_state("element " + std::to_string(e) + " of a pool");
    }
  }

 private:
  Shown shown(void* data) const {
    return {static_cast<Seen*>(data), observation_.data(), observation_.size(), observation_size_};
  }
  std::vector<std::unique_ptr<Element>> elements_;
  Dims action_, observation_;
  std::int64_t action_size_ = 1, observation_size_ = 1;
};

/// What a Pool does, by the package.
class PoolCalls {
 public:
  virtual ~PoolCalls() = default;
  virtual Tensor reset(Place place) = 0;
  virtual Transition step(const Operand& actions) = 0;
  virtual Pending<Transition> start_step(const Operand& actions) = 0;
  virtual void send(const Operand& elements, const Operand& actions) = 0;
  virtual Arrived receive(std::int64_t k, Place place) = 0;
};
/// Throws PluginError where Postern was built without the package.
POSTERN_API std::shared_ptr<PoolCalls> make_pool(std::unique_ptr<Simulators> simulators,
                                                 const SimulatorOptions& options, Place place);

}  // namespace detail

/// n simulators of one class, which are its elements, stepped by several threads.
///
/// An element whose episode has ended begins anew with the step behind that: this does not look at
/// its action, gives the new episode's first observation, a reward of 0 and neither terminated nor
/// truncated. So the observation of a step that ends an episode is the episode's last, and the very
/// first step begins all elements. What comes of a step does not depend on the number of threads:
/// each element has its own simulator and seeds, and its place in the results. A slow one holds no
/// other up.
///
/// Every member but `[]` is an ordered call (Effect::ordered): inside of programs it is entered
/// each time that the program comes there, outside at once. What a simulator throws fails the run
/// with a CallbackError whose cause is a PoolError; the other elements have taken their step then,
/// and that one begins anew with the next. A run that is stopped leaves out elements that have not
/// begun. Recordings have what the calls give, so that replays enter no simulator.
///
/// Programs share a pool; one steps it at a time, or it is an Error(failed_precondition) of the
/// run.
///
///   struct Walk {  // to the right until 3
///     static pn::Type action() { return pn::type<float>(); }
///     static pn::Type observation() { return pn::type<float>({1}); }
///     void reset(std::uint64_t, pn::View<float> seen) { seen[0] = x = 0; }
///     pn::Stepped step(float action, pn::View<float> seen) {
///       seen[0] = x += action;
///       return {.reward = -1, .terminated = x >= 3};
///     }
///     float x = 0;
///   };
///   pn::Pool<Walk> pool(2, {.kept = false});
///   auto walk = pn::jit([&](pn::Tensor actions) {
///     const pn::Tensor first = pool.reset();
///     return std::pair{first, pool.step(actions)};
///   });
///   const auto [first, next] = walk(pn::tensor<float>({1, 4}));
///   std::cout << next.terminated << "\n";  // [false true]
template <class S>
class Pool {
 public:
  /// Makes its elements by `make(number)`, or by default. `n`: 1 to 2^31 - 1. Throws TypeError for
  /// options and numbers out of range, and for simulators whose types differ from each other or
  /// from those of the views that they take; Error(already_exists) where a state of its name is
  /// registered.
  template <std::invocable<std::int64_t> Make>
  Pool(std::int64_t n, const Make& make, const SimulatorOptions& options = {},
       Place place = Place::current()) {
    auto simulators = std::make_unique<detail::SimulatorsOf<S>>(n, make);
    simulators_ = simulators.get();
    calls_ = detail::make_pool(std::move(simulators), options, place);
  }
  explicit Pool(std::int64_t n, const SimulatorOptions& options = {},
                Place place = Place::current()) requires std::default_initializable<S>
      : Pool(
            n, [](std::int64_t) { return S(); }, options, place) {}
  Pool(Pool&&) noexcept = default;
  Pool& operator=(Pool&&) = delete;
  /// Waits for elements that are being stepped; programs that come to it later fail (closed).
  ~Pool() = default;

  /// Returns how many elements there are; the simulator of one, for times when no program steps it.
  /// Throw nothing.
  std::int64_t size() const { return simulators_->size(); }
  S& operator[](std::int64_t element) const { return simulators_->at(element); }

  /// Begins a new episode of every element, and returns the first observations. Forgets what was
  /// sent and not received. Throws nothing.
  Tensor reset(Place place = Place::current()) const { return calls_->reset(place); }
  /// Steps every element. `actions`: of the simulators' type, with the elements in front. Throws
  /// TypeError for another.
  Transition step(const Operand& actions) const { return calls_->step(actions); }
  /// Starts that, and goes on: `wait` gives what comes of it. Throws as `step` does. See
  /// start_call.
  [[nodiscard]] Pending<Transition> start_step(const Operand& actions) const {
    return calls_->start_step(actions);
  }

  /// Gives some elements an action each, and goes on. `elements`: s32[k], of which none is under
  /// way; `actions`: k. Throws TypeError for other types. Threads step them in the order in which
  /// they were sent; they stay under way until they are received, in this run or another.
  void send(const Operand& elements, const Operand& actions) const {
    calls_->send(elements, actions);
  }
  /// Waits until k of those that are under way have been stepped, and returns the first that were.
  /// Which these are depends on time. Throws TypeError for k < 1; where fewer are under way the run
  /// fails (failed_precondition).
  Arrived receive(std::int64_t k, Place place = Place::current()) const {
    return calls_->receive(k, place);
  }

 private:
  const detail::SimulatorsOf<S>* simulators_ = nullptr;
  std::shared_ptr<detail::PoolCalls> calls_;
};

}  // namespace postern
