// Lent: what the library keeps for Python, and lets go of from any thread.
//
// Whoever lets go may hold locks of the library or no lock of the interpreter, so it only goes into
// a list, which is emptied where Python runs anyhow.
#pragma once
#include <nanobind/nanobind.h>

#include <cstddef>
#include <memory>

namespace postern::python {

namespace nb = nanobind;

/// Dropped with the interpreter's lock.
struct Lent {
  virtual ~Lent() = default;
};
struct LentObject final : Lent {
  explicit LentObject(nb::object o) : object(std::move(o)) {}
  nb::object object;
};

/// The library's hold, as the `user` or `cause` of postern/c.h.
void* lend(std::unique_ptr<Lent> lent);
void* lend(nb::object object);
/// What the library calls at the end. From any thread, once.
void give_back(void* lent) noexcept;
/// The object that was lent; none when the pointer is somebody else's.
nb::object object_of(void* lent);
/// How much the library holds.
std::size_t lent_count();
/// Drops what was given back. With the interpreter's lock, and no lock of ours or the library's.
void drop_given_back();
/// Holds what was given back while the process forks, and lets go of it in both.
void hold_given_back();
void let_go_of_given_back();
/// From now on nothing is dropped: the interpreter ends.
void keep_all_given_back();

}  // namespace postern::python
