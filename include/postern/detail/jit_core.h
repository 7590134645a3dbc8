// The part of jit that does not depend on the function's type: key, cache entry, running.
#pragma once
#include <postern/detail/api.h>
#include <postern/detail/callee.h>
#include <postern/detail/function.h>
#include <postern/detail/small_vector.h>
#include <postern/hook.h>
#include <postern/program.h>
#include <postern/run.h>
#include <postern/tree.h>

#include <array>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <vector>

namespace postern {

struct JitOptions;

namespace detail {

class JitCore;
struct Entry;

/// The arguments' leaves, by address, their C++ types, and their structure, of each argument where
/// its type does not fix it, and a semicolon.
class Key {
 public:
  template <class... B>
  explicit Key(const B&... boxed) : pack_(&typeid(void(B...))) {
    (add(boxed), ...);
  }
  const std::type_info& pack() const { return *pack_; }
  std::span<const Tensor* const> leaves() const { return leaves_; }
  const std::string& structure() const { return structure_; }
  /// Returns for each argument the number of leaves up to its end.
  std::span<const std::size_t> argument_ends() const { return ends_; }

 private:
  template <class B>
  void add(const B& boxed) {
    visit(
        boxed, [this](const Tensor& leaf) { leaves_.push_back(&leaf); },
        fixed_structure<B>() ? nullptr : &structure_);
    structure_ += ';';
    ends_.push_back(leaves_.size());
  }
  const std::type_info* pack_;
  SmallVector<const Tensor*, 16> leaves_;
  SmallVector<std::size_t, 16> ends_;
  std::string structure_;
};

/// What tracing gives back: the results' leaves, and the container to put real ones into.
struct Outputs {
  std::vector<Tensor> leaves;
  std::shared_ptr<const void> like;
  bool nothing = false;                       // the function is void
  std::vector<std::string>* paths = nullptr;  // asked for in place of tracing: of the arguments

  template <class R>
  void set(R result) {
    nothing = std::is_same_v<R, std::tuple<>>;
    leaves = leaves_of(result);
    visit(result, [](Tensor& leaf) { leaf = Tensor(); });
    like = hold<R>(std::move(result));
  }
};

/// Traces the function.
using Tracer = FunctionRef<void(const std::vector<Tensor>& leaves, Outputs& out)>;

POSTERN_API std::shared_ptr<JitCore> make_jit(JitOptions options);
POSTERN_API std::shared_ptr<JitCore> with_hooks(const JitCore& core,
                                                std::vector<HookBinding> listeners,
                                                const HookRules& rules);
POSTERN_API const std::vector<HookInfo>& hooks_of(const Entry& entry);

/// The listeners of a jitted function that is called while something else is traced.
class NestedHooks {
 public:
  POSTERN_API explicit NestedHooks(const JitCore& core);
  POSTERN_API ~NestedHooks();
  NestedHooks(const NestedHooks&) = delete;
  POSTERN_API void check_known() const;

 private:
  const JitCore& core_;
  std::unique_ptr<internal::HookScope> scope_;
};
/// Returns the entry for arguments like these; traces on first use (and compiles, unless `compile`
/// is false). Throws what the function throws while it is traced.
POSTERN_API const Entry& find(JitCore& core, const Key& key, const Tracer& tracer,
                              bool compile = true);
POSTERN_API std::size_t result_count(const Entry& entry);
POSTERN_API std::shared_ptr<const void> result_like(const Entry& entry);
/// Runs the entry, which a function that the program calls may drop: afterwards there may be none.
POSTERN_API void run(const Entry& entry, const Key& key, std::span<Tensor> results);
/// Waits for its end.
POSTERN_API void run(const Entry& entry, const Key& key, const RunOptions& options,
                     std::span<Tensor> results);
POSTERN_API std::shared_ptr<StartedRun> start(const Entry& entry, const Key& key,
                                              const RunOptions& options);
POSTERN_API Lowered lowered(const Entry& entry);

/// A function of open sizes: the extents that `any` gave, and the program at some.
struct OpenProgram {
  std::vector<std::int64_t> extents;
  std::function<Lowered(const std::vector<std::int64_t>& sizes)> at;
};
/// Returns the open extents among the arguments, each once.
POSTERN_API std::vector<std::int64_t> open_extents(const Key& key);
POSTERN_API Tensor leaf_at(const Tensor& leaf, const std::vector<std::int64_t>& extents,
                           const std::vector<std::int64_t>& sizes);
POSTERN_API Lowered lowered_open(OpenProgram open);
template <class B>
B at_sizes(const B& boxed, const std::vector<std::int64_t>& extents,
           const std::vector<std::int64_t>& sizes) {
  std::vector<Tensor> leaves = leaves_of(boxed);
  for (Tensor& leaf : leaves) leaf = leaf_at(leaf, extents, sizes);
  [[maybe_unused]] const Tensor* next = leaves.data();
  return with_leaves(boxed, next);
}
POSTERN_API Executable compiled(const Entry& entry);
POSTERN_API TracedProgram traced(const Entry& entry);
POSTERN_API std::vector<StageInfo> stages(const Entry& entry);
POSTERN_API bool tracing();

/// `options`: none, or of the run.
template <class R, class... O>
R run(const Entry& entry, const Key& key, const O&... options) {
  if constexpr (std::is_same_v<R, Tensor>) {
    Tensor result;
    run(entry, key, options..., std::span(&result, 1));
    return result;
  } else {
    constexpr std::size_t few = 8;
    std::array<Tensor, few> small;
    std::vector<Tensor> large;
    const std::size_t count = result_count(entry);
    if (count > few) large.resize(count);
    const auto like = result_like(entry);
    const std::span<Tensor> results =
        count > few ? std::span(large) : std::span(small.data(), count);
    run(entry, key, options..., results);
    const Tensor* next = results.data();
    return with_leaves(*static_cast<const R*>(like.get()), next);
  }
}

// --- arguments: how they are held while a program is looked up and traced ---

template <class P>
using hold_t =
    std::conditional_t<std::is_same_v<std::decay_t<P>, const char*>, std::string, std::decay_t<P>>;

/// What a parameter is given: an Operand, which library functions take, is made of a Tensor.
template <class P>
using given_t = std::conditional_t<std::is_same_v<P, Operand>, Tensor, P>;

/// Boxes an argument: a callable of a stated signature takes its own parameter types, others get
/// numbers as tensors.
template <class F, std::size_t i, class A>
decltype(auto) boxed(A&& argument) {
  if constexpr (HasSignature<F>) {
    using P = given_t<
        std::decay_t<std::tuple_element_t<i, typename Signature<std::decay_t<F>>::Parameters>>>;
    if constexpr (std::is_same_v<P, std::decay_t<A>>)
      return std::forward<A>(argument);
    else
      return P(std::forward<A>(argument));
  } else if constexpr (std::is_arithmetic_v<std::decay_t<A>>) {
    return Tensor(argument);
  } else if constexpr (!std::is_same_v<hold_t<A>, std::decay_t<A>>) {
    return hold_t<A>(argument);
  } else {
    return std::forward<A>(argument);
  }
}

/// Calls it; void functions give an empty tuple.
template <class F, class... B>
auto call_plain(F& f, B&&... arguments) {
  if constexpr (std::is_void_v<decltype(f(std::forward<B>(arguments)...))>) {
    f(std::forward<B>(arguments)...);
    return std::tuple<>();
  } else {
    using R = std::decay_t<decltype(f(std::forward<B>(arguments)...))>;
    if constexpr (std::is_arithmetic_v<R>)
      return Tensor(f(std::forward<B>(arguments)...));
    else
      return R(f(std::forward<B>(arguments)...));
  }
}
/// Calls it with the parts of a tuple.
template <class F, class... B>
auto apply_plain(F& f, std::tuple<B...>& arguments) {
  return [&]<std::size_t... i>(std::index_sequence<i...>) {
    return call_plain(f, std::get<i>(arguments)...);
  }
  (std::index_sequence_for<B...>());
}
template <class F, class... B>
using plain_result = decltype(call_plain(std::declval<F&>(), std::declval<B&>()...));

/// Lets a callable object of a stated signature be called with braced arguments: `f({a, b})`.
template <class Self, class F, bool = HasSignature<F>>
struct BraceCall {
  static_assert(!std::is_member_pointer_v<F>,
                "postern: a member function has no object here: in place of jit(&Net::forward) "
                "write jit([&net](pn::Tensor x) { return net.forward(x); })");
  template <class... A>
  auto operator()(A&&... arguments) const {
    return static_cast<const Self&>(*this).invoke(std::forward<A>(arguments)...);
  }
};
template <class Self, class Parameters>
struct BraceCallTyped;
template <class Self, class... P>
struct BraceCallTyped<Self, std::tuple<P...>> {
  static_assert(((!std::is_lvalue_reference_v<P> ||
                  std::is_const_v<std::remove_reference_t<P>>)&&...),
                "postern: a function that is traced changes no argument: in place of "
                "[](pn::Tensor& x) write [](pn::Tensor x), and return what comes out");
  auto operator()(const given_t<std::decay_t<P>>&... arguments) const {
    return static_cast<const Self&>(*this).invoke(arguments...);
  }
};
template <class Self, class F>
struct BraceCall<Self, F, true>
    : BraceCallTyped<Self, typename Signature<std::decay_t<F>>::Parameters> {};

}  // namespace detail
}  // namespace postern
