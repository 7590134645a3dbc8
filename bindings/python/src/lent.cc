// Objects that the library holds, and the list of those that it has let go of.
#include "lent.h"

#include <atomic>
#include <mutex>
#include <unordered_set>
#include <vector>

namespace postern::python {
namespace {

struct State {
  std::mutex guard;
  std::unordered_set<void*> held;  // the void pointers are those of Lent
  std::vector<Lent*> given_back;
  std::atomic<bool> any{false};
  bool scheduled = false, closed = false;
};

/// Never destroyed: the library's threads give back after the last static has gone.
State& state() {
  static auto* const s = new State;
  return *s;
}

int drop_pending(void*) {
  drop_given_back();
  return 0;
}

}  // namespace

void* lend(std::unique_ptr<Lent> lent) {
  const std::scoped_lock lock(state().guard);
  state().held.insert(lent.get());
  return lent.release();
}

void* lend(nb::object object) { return lend(std::make_unique<LentObject>(std::move(object))); }

void give_back(void* lent) noexcept {
  State& s = state();
  const std::scoped_lock lock(s.guard);
  s.held.erase(lent);
  if (s.closed) return;
  s.given_back.push_back(static_cast<Lent*>(lent));
  s.any = true;
  // The interpreter calls it soon, on its main thread. Where its list is full, others drop.
  if (!s.scheduled) s.scheduled = Py_AddPendingCall(drop_pending, nullptr) == 0;
}

nb::object object_of(void* lent) {
  if (!lent) return nb::none();
  const std::scoped_lock lock(state().guard);
  if (!state().held.contains(lent)) return nb::none();
  const auto* const found = dynamic_cast<LentObject*>(static_cast<Lent*>(lent));
  if (!found) return nb::none();
  return found->object;
}

std::size_t lent_count() {
  const std::scoped_lock lock(state().guard);
  return state().held.size();
}

void drop_given_back() {
  if (!state().any.exchange(false)) return;
  std::vector<Lent*> dropped;
  {
    const std::scoped_lock lock(state().guard);
    dropped.swap(state().given_back);
    state().scheduled = false;
  }
  for (const Lent* lent : dropped) delete lent;
}

void hold_given_back() { state().guard.lock(); }
void let_go_of_given_back() { state().guard.unlock(); }

void keep_all_given_back() {
  const std::scoped_lock lock(state().guard);
  state().closed = true;
}

}  // namespace postern::python
