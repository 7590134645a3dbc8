// What a call's host functions do: run the function, keep its graph, give its derivatives.
#include "site.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/stack.h>
#include <c10/core/InferenceMode.h>
#include <omp.h>

#include <algorithm>
#include <atomic>
#include <numeric>

#include "batched.h"
#include "bound.h"
#include "entry.h"
#include "types.h"

namespace postern::torch {

namespace {

std::atomic<int> threads_in_calls{0};

/// Torch's threads for operations of this thread, as set_threads says.
class Threads {
 public:
  Threads() {
    const int wanted = threads_in_calls.load(std::memory_order_relaxed);
    if (wanted == 0) return;
    at::internal::lazy_init_num_threads();  // it would set the number later
    before_ = omp_get_max_threads();
    if (before_ == wanted)
      before_ = 0;
    else
      omp_set_num_threads(wanted);
  }
  ~Threads() {
    if (before_) omp_set_num_threads(before_);
  }
  Threads(const Threads&) = delete;

 private:
  int before_ = 0;
};

/// A run of the function itself: where its random numbers begin, and whether it draws any.
class FirstHand {
 public:
  /// `always`: looks also where it is known to draw none.
  FirstHand(Learned& learned, bool always, const StopToken& stop) : learned_(learned) {
    const Draws draws = learned.draws;
    if (draws == Draws::no && !always) return;
    drawing_.emplace();
    // Who holds it may be waiting for this very run, on another thread.
    const auto limit = std::chrono::seconds(draws == Draws::yes ? 60 : 1);
    if (draws != Draws::no) drawing_->lock(limit, stop);
    began_ = random_state();
  }
  /// None where it drew none. `size`: of its batch.
  std::optional<Began> ended(std::int64_t size = 1) {
    if (!began_) return {};
    const bool drew = !(random_state() == *began_), sure = drawing_->alone();
    Draws known = drew ? Draws::no : Draws::unknown;
    if (drew && sure)
      learned_.draws = Draws::yes;
    else
      learned_.draws.compare_exchange_strong(known, drew ? Draws::unknown : Draws::no);
    return drew ? std::optional(Began{*began_, sure, size}) : std::nullopt;
  }

 private:
  using Draws = Learned::Draws;
  Learned& learned_;
  std::optional<Drawing> drawing_;
  std::optional<RandomState> began_;
};

void run_plain(const Entry& e, const StopToken& stop) {
  const Site& site = e.site;
  const Erased& f = site.erased();
  const at::NoGradGuard no_graph;
  Operands operands(e.operands, e.in, e.flat ? e.batch : Sizes(), e.flat);
  {
    const Bound bound(f, operands.tensors, stop);
    FirstHand run(*site.learned, false, stop);
    if (f.fills) {
      TorchTensors all = operands.tensors;
      for (const AnyMutableView& r : e.results) all.push_back(over(r.data(), r.dims(), r.dtype()));
      f.run(all);
    } else {
      const auto first =
          operands.tensors.begin() + static_cast<std::ptrdiff_t>(f.parameters.size());
      if (const auto size = e.vmap_size())
        e.write_all(run_batched(f, {first, operands.tensors.end()}, *size, *site.learned));
      else if (f.parameters.empty())
        e.write_all(f.run(operands.tensors));
      else
        e.write_all(f.run({first, operands.tensors.end()}));
    }
    run.ended();
    bound.check_unchanged();
  }
  operands.check_unchanged();
  operands.release();
}

void write_ticket(const AnyMutableView& to, std::int64_t ticket) {
  auto* const numbers = reinterpret_cast<std::int64_t*>(to.data());
  std::fill_n(numbers, to.size(), ticket);
}

void run_keeping(const Entry& e, const StopToken& stop) {
  const Site& site = e.site;
  const AnyMutableView& ticket = e.results[e.out.size()];
  Operands operands(e.operands, e.in, e.batch, e.flat);
  const Evaluation evaluation(site.erased(), site.movable, {}, *site.learned, e.vmap_size());
  Graph graph;
  std::optional<Began> began;
  {
    const Bound bound(site.erased(), operands.tensors, stop);
    evaluation.prepare(operands.tensors);
    FirstHand run(*site.learned, true, stop);
    const TorchTensors y = evaluation.function(operands.tensors);
    began = run.ended(count_of(e.batch));
    const c10::AutoGradMode no_graph(false);
    e.write_all(y);
    graph = {operands.tensors, operands.storages(), bound.memory(), chosen(y, site.movable.out),
             e.batch};
    bound.check_unchanged();
  }
  operands.check_unchanged();
  write_ticket(ticket, site.kept->add(std::move(graph), began));
  operands.leave();
}

/// Torch's random numbers as they were when the function was called, for this run alone.
class Replayed {
 public:
  /// `size`: of the batch. Throws where the function drew its numbers for another one.
  Replayed(const Kept& kept, std::int64_t ticket, std::int64_t size, const StopToken& stop)
      : began_(kept.began(ticket)) {
    if (!began_) return;
    if (began_->size != size)
      throw Error(ErrorCode::failed_precondition,
                  "the function drew random numbers for a batch of " +
                      std::to_string(began_->size) + ", and its derivative is asked for at " +
                      std::to_string(size) +
                      " points, as where only the condition that it is called under has a batch; "
                      "give it an operand for each");
    if (!drawing_.emplace().lock(std::chrono::minutes(1), stop))
      throw Error(ErrorCode::unavailable,
                  "another torch function that draws random numbers has been running for a minute, "
                  "or the run was stopped meanwhile; such a function must not wait for the "
                  "derivative of another one");
    now_ = random_state();
    set_random_state(began_->state);
  }
  ~Replayed() {
    if (now_) set_random_state(*now_);
  }
  Replayed(const Replayed&) = delete;

  /// Throws where the run has drawn what may be others' numbers.
  void check() const {
    if (began_ && !began_->sure && !(random_state() == began_->state))
      throw Error(ErrorCode::failed_precondition,
                  "the function drew random numbers while others did, as it is not known to do, so "
                  "which ones is not known, and its derivative would be that of another function; "
                  "run it again");
  }

 private:
  const std::optional<Began> began_;
  std::optional<Drawing> drawing_;
  std::optional<RandomState> now_;
};

/// A graph over the operands' memory of now.
void point_at(Graph& graph, Views operands) {
  for (std::size_t i = 0; i < graph.storages.size(); ++i)
    if (graph.storages[i])
      graph.storages[i].set_data_ptr_noswap(
          at::DataPtr(const_cast<std::byte*>(operands[i].data()), at::kCPU));
}

/// Writes the cotangents of x. Where it alone has no batch, one after the other.
void write_pulled(const Entry& e, const TorchTensors& y, const TorchTensors& x,
                  const TorchTensors& ct, bool each) {
  if (!each) return e.write_all(pulled(y, x, ct, true, true, false));
  const std::int64_t size = count_of(e.batch);
  TorchTensors out;
  for (std::size_t r = 0; r < e.out.size(); ++r) {
    Sizes dims = e.out[r].dims;
    dims.insert(dims.begin(), size);
    out.push_back(over(e.results[r].data(), dims, e.results[r].dtype()));
  }
  for (std::int64_t i = 0; i < size; ++i) {
    TorchTensors one;
    for (const at::Tensor& t : ct) one.push_back(t.select(0, i));
    const TorchTensors g = pulled(y, x, one, true, true, false);
    const at::NoGradGuard no_graph;
    for (std::size_t r = 0; r < g.size(); ++r) out[r].select(0, i).copy_(g[r]);
  }
}

/// A batch of which some levels are at one point: where the function drew random numbers, each of
/// their elements is a run of its own, from the same numbers on.
class Runs {
 public:
  explicit Runs(const Entry& e) : e_(e), levels_(e.levels_at_one_point()) {
    for (std::size_t i = 0; i < e.batch.size(); ++i)
      (std::count(levels_.begin(), levels_.end(), i) ? outer_ : inner_).push_back(e.batch[i]);
    front_.resize(levels_.size());
    std::iota(front_.begin(), front_.end(), 0);
  }
  std::int64_t size() const { return count_of(outer_); }
  bool one() const { return levels_.empty(); }
  std::optional<std::int64_t> vmap_size() const {
    return inner_.empty() || !e_.flat ? std::nullopt : std::optional(count_of(inner_));
  }
  /// Of operands that have the whole batch in front.
  TorchTensors operands(const TorchTensors& all, std::int64_t run) const {
    if (one()) return all;
    TorchTensors out;
    for (std::size_t i = 0; i < all.size(); ++i) {
      Sizes dims{size()};
      if (const auto flat = vmap_size())
        dims.push_back(*flat);
      else
        dims.insert(dims.end(), inner_.begin(), inner_.end());
      dims.insert(dims.end(), e_.in[i].dims.begin(), e_.in[i].dims.end());
      out.push_back(all[i].movedim(levels_, front_).reshape(dims).select(0, run));
    }
    return out;
  }
  TorchTensors results(const std::vector<TorchTensors>& runs) const {
    if (one()) return runs[0];
    TorchTensors out;
    for (std::size_t r = 0; r < e_.out.size(); ++r) {
      TorchTensors each;
      for (const TorchTensors& y : runs) each.push_back(y[r]);
      Sizes dims = outer_;
      dims.insert(dims.end(), inner_.begin(), inner_.end());
      dims.insert(dims.end(), e_.out[r].dims.begin(), e_.out[r].dims.end());
      const at::Tensor whole = at::stack(each).reshape(dims).movedim(front_, levels_);
      out.push_back(whole.reshape(e_.result_dims(r)));
    }
    return out;
  }

 private:
  const Entry& e_;
  Sizes levels_, front_, outer_, inner_;
};

void run_derivative(const Entry& e, const Path& path, const StopToken& stop) {
  const Site& site = e.site;
  const std::int64_t ticket = e.ticket();
  const Runs runs(e);
  Operands operands(e.operands, e.in, e.batch, e.flat && runs.one());
  const Evaluation evaluation(site.erased(), site.movable, path, *site.learned, runs.vmap_size());
  std::vector<TorchTensors> results;
  for (std::int64_t i = 0; i < runs.size(); ++i) {
    TorchTensors x = runs.operands(operands.tensors, i);
    for (at::Tensor& t : x)  // torch's forward mode wants primals and tangents alike
      if (t.is_view()) t = t.clone(at::MemoryFormat::Contiguous);
    const Bound bound(site.erased(), x, stop);
    const Replayed replayed(*site.kept, ticket, count_of(e.batch) / runs.size(), stop);
    evaluation.prepare(x);
    results.push_back(evaluation(x));
    replayed.check();
    bound.check_unchanged();
  }
  e.write_all(runs.results(results));
  results.clear();
  operands.check_unchanged();
  site.kept->take(ticket);  // nobody else is likely to want it
  operands.release();
}

/// The first derivative in reverse mode, from the call's own graph where it is kept.
void run_pull(const Entry& e, const StopToken& stop) {
  const Site& site = e.site;
  const std::size_t n = site.in.size();
  const std::int64_t ticket = e.ticket();
  const Sizes batch = e.batch_of_first(n);
  // With numbers drawn for each element of the batch x has it too.
  const bool drew_for_each = Kept::drew(ticket) && e.levels_at_one_point().empty();
  const bool each = batch.empty() && !e.batch.empty() && !drew_for_each;
  if (!each && !e.levels_at_one_point().empty()) return run_derivative(e, {Step::pull}, stop);
  const Sizes full = each ? Sizes() : e.batch;
  // Of x without a batch: as if there were no axes of 1.
  std::vector<Type> x_types(e.in.begin(), e.in.begin() + static_cast<std::ptrdiff_t>(n));
  const std::vector<Type> ct_types(e.in.begin() + static_cast<std::ptrdiff_t>(n), e.in.end());
  Operands ct(e.operands.subspan(n), ct_types, e.batch, each || e.flat);
  std::optional<Graph> graph = site.kept->take(ticket);
  if (graph && graph->batch == full) {
    point_at(*graph, e.operands);
    {
      const Bound bound(site.erased(), graph->inputs, graph->bound, stop);
      const Versions before = versions_of(graph->inputs);
      write_pulled(e, graph->results, chosen(graph->inputs, site.movable.in), ct.tensors, each);
      bound.check_unchanged();
      check_unchanged(graph->inputs, before);
    }
    ct.check_unchanged();
    site.kept->give_back(ticket, std::move(*graph));
    return ct.release();
  }
  if (graph) site.kept->give_back(ticket, std::move(*graph));
  Operands x(e.operands.first(n), x_types, full, e.flat);
  if (each)
    for (std::size_t i = 0; i < n; ++i) x.tensors[i] = x.tensors[i].reshape(x_types[i].dims);
  const auto size = each ? std::nullopt : e.vmap_size();
  const Evaluation evaluation(site.erased(), site.movable, {}, *site.learned, size);
  {
    const Bound bound(site.erased(), x.tensors, stop);
    const Replayed replayed(*site.kept, ticket, count_of(full), stop);
    evaluation.prepare(x.tensors);
    const TorchTensors y = chosen(evaluation.function(x.tensors), site.movable.out);
    replayed.check();
    write_pulled(e, y, chosen(x.tensors, site.movable.in), ct.tensors, each);
    bound.check_unchanged();
  }
  x.check_unchanged();
  ct.check_unchanged();
  x.release();
  ct.release();
}

/// What every entry does before and after. `act` runs with gradients on.
template <class Act>
void entered(const Entry& entry, Act act) {
  if (count_of(entry.batch) == 0) return;  // nothing to write
  const c10::InferenceMode normal(false);  // whoever runs the program may have turned them off
  const Outside outside;
  const Threads threads;
  try {
    act();
  } catch (...) {
    rethrow_shortly();
  }
}

std::vector<bool> movable_of(const std::vector<Type>& types) {
  std::vector<bool> which;
  for (const Type& t : types) which.push_back(is_differentiable(t.dtype));
  return which;
}

}  // namespace

void set_threads(int threads) {
  if (threads < 0)
    throw TypeError("torch::set_threads: the number is " + std::to_string(threads) +
                    ", required is 0 or more");
  threads_in_calls = threads;
}

Site::Site(const Options& o, const Function& f, std::vector<Type> operands,
           std::vector<Type> results)
    : options(o),
      fn(f),
      in(std::move(operands)),
      out(std::move(results)),
      movable{movable_of(in), movable_of(out)},
      own_vmap(!o.vmap && !out.empty() && !f.erased()->fills && f.erased()->parameters.empty()),
      kept(std::make_shared<Kept>(o.kept)) {}

Callee host_function(SitePtr site, bool keep) {
  const Place place = site->fn.place();
  if (site->erased().parameters.empty() && !keep)
    return {[site](Views operands, MutableViews results) {
              const Entry entry(*site, operands, results, site->in, site->out);
              entered(entry, [&] { run_plain(entry, StopToken()); });
            },
            place};
  return {[site, keep](const CallInfo& info, Views operands, MutableViews results) {
            const Entry entry(*site, operands, results, site->in, site->out);
            entered(entry,
                    [&] { keep ? run_keeping(entry, info.stop) : run_plain(entry, info.stop); });
          },
          place};
}

Callee host_derivative(SitePtr site, Path path, std::vector<Type> in, std::vector<Type> out) {
  const Place place = site->fn.place();
  const bool first = path.size() == 1 && path[0] == Step::pull;
  return {[=](const CallInfo& info, Views operands, MutableViews results) {
            const Entry entry(*site, operands, results, in, out);
            entered(entry, [&] {
              first ? run_pull(entry, info.stop) : run_derivative(entry, path, info.stop);
            });
          },
          place};
}

}  // namespace postern::torch
