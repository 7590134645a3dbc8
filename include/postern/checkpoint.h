// Checkpoints: containers kept from inside a program while it runs, as safetensors files with the
// registered states of host functions, and taken up again by another process. See
// docs/checkpoints.md.
//
//   pn::tap({.name = "state"}, next, pn::listen::checkpoint("run", {.every = 100}));
//   if (auto state = pn::resume<State>("run")) ...
#pragma once
#include <postern/detail/api.h>
#include <postern/host.h>
#include <postern/record.h>
#include <postern/safetensors.h>
#include <postern/state.h>
#include <postern/tap.h>
#include <postern/tree.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace postern {

// --- keeping ---

namespace listen {

struct CheckpointOptions {
  std::int64_t every = 1;  // firings 0, every, 2 * every, ... that this listener is shown
  bool last = false;       // the last firing of a run too, when the run has ended, however it has:
                           // each firing is copied then, and registered states are saved
  std::int64_t keep = 3;   // so many of the newest stay in the folder; 0: all
  bool async = true;       // the program goes on while a copy is written. At most one more copy
                           // waits; then the program does
  OnError on_error = OnError::stop;  // with `stop` the next firing fails, or wait(), or barrier()
  /// Of a tap over processes: how long a process waits for what others are to write when nothing
  /// comes of it. Then the checkpoint has failed.
  std::chrono::milliseconds patience = std::chrono::seconds(60);
};

/// Keeps the whole of what it is shown, and the registered states of that moment, as a checkpoint
/// in a folder: safetensors files, and when all of them are on disk a manifest with their
/// checksums, which makes the checkpoint count. Whenever the process is killed, what was whole
/// stays so. One process at a time writes to a folder, which is made when there is none.
///
/// For a synchronous tap of any container. With TapOptions::partitioned each device writes its
/// part, and resume() puts them together. In shard_map, where a site knows the place of its first
/// leaf alone, it is for taps of one leaf whose place is known. Where the mesh spans processes, all
/// of them make one checkpoint in a folder that they share: each its parts and its states.
class Checkpoint {
 public:
  /// Throws TypeError for a folder without name and options out of range; Error:
  /// failed_precondition when another process writes to the folder, unavailable when it cannot be
  /// written to; with OnError::go_on firings try again instead.
  POSTERN_API explicit Checkpoint(const std::filesystem::path& folder,
                                  const CheckpointOptions& options = {},
                                  Place place = Place::current());
  /// Is called by tap and hook, to keep a checkpoint. With OnError::stop it throws what it, or a
  /// write before it, failed with; Error(failed_precondition) for a tap that it is not for.
  POSTERN_API void operator()(const TapInfo& info, std::span<const AnyView> leaves) const;
  /// Waits until all that was shown is on disk, as barrier() waits too. Throws what went wrong, if
  /// no firing has.
  POSTERN_API void wait() const;
  /// Counts the checkpoints that have been written by now. Throws nothing.
  POSTERN_API std::uint64_t written() const;

 private:
  std::shared_ptr<struct CheckpointState> state_;
};
/// Makes a Checkpoint; throws as its constructor does.
inline Checkpoint checkpoint(const std::filesystem::path& folder,
                             const CheckpointOptions& options = {},
                             Place place = Place::current()) {
  return Checkpoint(folder, options, place);
}

}  // namespace listen

// --- going on ---

namespace detail {

struct FoundCheckpoint;
/// Returns null when the folder has none.
POSTERN_API std::shared_ptr<const FoundCheckpoint> newest_checkpoint(
    const std::filesystem::path& folder);
POSTERN_API const std::vector<std::string>& names_in(const FoundCheckpoint& checkpoint);
/// Returns the tensors of these names; `like` says their types, or is empty. Then loads the states.
POSTERN_API std::vector<Tensor> restore(const FoundCheckpoint& checkpoint,
                                        const std::vector<std::string>& names,
                                        const std::vector<Tensor>& like);
/// Has the recording give what it holds after the checkpoint; null: there is none.
POSTERN_API void resume_recording(const FoundCheckpoint* checkpoint, const Taping& recording);

/// Whether no path goes on behind such a value.
template <class T>
inline constexpr bool ends_path = is_leaf<T>;
template <class T>
inline constexpr bool ends_path<std::optional<T>> = is_leaf<T>;

/// Gives vectors their elements, maps their keys and optionals their values, as the names of the
/// leaves say. `path` has its dot in front.
class ShapedByNames {
 public:
  explicit ShapedByNames(const std::vector<std::string>& names) : names_(names) {}

  template <class Tree>
  void operator()(Tree& tree, const std::string& path) const {
    auto indexed = [&](auto&... parts) {
      std::size_t i = 0;
      ((*this)(parts, indexed_path(path, i++)), ...);
    };
    if constexpr (is_leaf<Tree> || is_static<Tree>) {
      return;
    } else if constexpr (is_tuple<Tree>::value) {
      std::apply(indexed, tree);
    } else if constexpr (is_vector<Tree>::value) {
      for (std::string next; has(next = indexed_path(path, tree.size()));)
        (*this)(tree.emplace_back(), next);
    } else if constexpr (is_map<Tree>::value) {
      for (const std::string& key : keys(path, ends_path<typename Tree::mapped_type>))
        (*this)(tree[key], path + "." + key);
    } else if constexpr (is_optional<Tree>::value) {
      if (has(path)) (*this)(tree.emplace(), path);
    } else {
      with_fields(tree, [&](auto&... parts) {
        std::size_t i = 0;
        ((*this)(parts, path + "." + std::string(field_names<Tree>()[i++])), ...);
      });
    }
  }

 private:
  static std::string indexed_path(const std::string& path, std::size_t i) {
    return path + "[" + std::to_string(i) + "]";
  }
  /// Returns whether there is a leaf at this path, or below.
  POSTERN_API bool has(const std::string& path) const;
  /// Returns the keys. Of leaves a key is all that follows; else it ends where the path goes on.
  POSTERN_API std::vector<std::string> keys(const std::string& path, bool of_leaves) const;

  const std::vector<std::string>& names_;
};

}  // namespace detail

namespace detail {

template <class T>
std::optional<T> restored(const FoundCheckpoint& found) {
  T tree{};
  ShapedByNames{names_in(found)}(tree, "");
  const std::vector<Tensor> leaves = restore(found, tensor_names(tree), {});
  return with_leaves(std::move(tree), leaves);
}
template <class T>
std::optional<T> restored(const FoundCheckpoint& found, const T& like) {
  const std::vector<Tensor> leaves = restore(found, tensor_names(like), leaves_of(like));
  return with_leaves(T(like), leaves);
}

}  // namespace detail

/// Returns the newest whole checkpoint of the folder as a T, and the registered states as they were
/// then; none when there is no checkpoint. One that is damaged is passed over for the one before,
/// which the log says. Vectors, maps and optionals get what the checkpoint has; keys of maps of
/// containers must be free of '.' and '[', or `like` must say them. Throws Error: data_loss when
/// there are checkpoints and none is whole, unavailable when the folder or a checkpoint cannot be
/// read, failed_precondition with all differences listed when it is of another program: leaves that
/// only one of them has, states likewise. One of several processes gives each of as many its own
/// states, and others what all had; where these differ: failed_precondition.
template <class T>
std::optional<T> resume(const std::filesystem::path& folder) {
  const auto found = detail::newest_checkpoint(folder);
  return found ? detail::restored<T>(*found) : std::nullopt;
}

/// Resumes a T with the structure, the static values and the types of `like`: differences in dtypes
/// and shapes are listed too. Throws the same errors.
template <class T>
std::optional<T> resume(const std::filesystem::path& folder, const T& like) {
  const auto found = detail::newest_checkpoint(folder);
  return found ? detail::restored<T>(*found, like) : std::nullopt;
}

/// Resumes with a recording, of record(file, {.resumable = true}), that was going on when the
/// checkpoint was kept: in the next runs of this thread calls give what they gave after the
/// checkpoint (without one: from the beginning), their functions are not entered, and registered
/// states follow. So the runs come to the very step at which the process ended. From there on
/// functions are entered, and recorded. A call whose operands differ from the recorded ones fails
/// its run with a CallbackError of failed_precondition. Calls that failed are entered again. Throws
/// Error: failed_precondition when runs have begun or the checkpoint was kept without this
/// recording, data_loss when the recording was changed or ends before the checkpoint.
template <class T>
std::optional<T> resume(const std::filesystem::path& folder, const Taping& recording) {
  const auto found = detail::newest_checkpoint(folder);
  std::optional<T> out = found ? detail::restored<T>(*found) : std::nullopt;
  detail::resume_recording(found.get(), recording);
  return out;
}
template <class T>
std::optional<T> resume(const std::filesystem::path& folder, const T& like,
                        const Taping& recording) {
  const auto found = detail::newest_checkpoint(folder);
  std::optional<T> out = found ? detail::restored<T>(*found, like) : std::nullopt;
  detail::resume_recording(found.get(), recording);
  return out;
}

}  // namespace postern
