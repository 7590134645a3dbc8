// A folder of checkpoints as it lies on disk.
//   lock                            locked by the process that writes
//   checkpoint-000000000012/        the numbers only grow
//     part-0.safetensors, ...       what each device showed
//     state-0, ...                  registered states
//     manifest                      the last to be written: without it there is no checkpoint
//   gathering-.../                  what becomes one of several processes: together.h
// Files of process 3 of several are part-3-0.safetensors, state-3-0 and so on.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/shown.h"
#include "journal.h"

namespace postern::internal::checkpoints {

using formats::StoredTensor, file::Json;

/// Memory from which whole blocks of a file go to the disk as they are.
struct FreeAligned {
  void operator()(std::byte* memory) const { std::free(memory); }
};
using AlignedMemory = std::unique_ptr<std::byte[], FreeAligned>;
/// Throws std::bad_alloc.
AlignedMemory aligned_memory(std::size_t size);

/// What one device has shown at a firing: a copy of its leaves.
struct CheckpointPart {
  std::vector<StoredTensor> tensors;
  std::vector<Dims> begins;  // of each in its whole
  AlignedMemory bytes = {};
  std::size_t size = 0;
};

/// How a snapshot is part of one that all processes make.
struct Together {
  int rank, size;
  std::uint64_t run;   // of the cluster
  std::string firing;  // what it is of, in the same words on all of them
  std::chrono::milliseconds patience;
};

/// All of one firing, to be written.
struct Snapshot {
  std::string tap, place;
  std::vector<std::pair<std::string, Type>> wholes;
  std::vector<CheckpointPart> parts;
  host::SavedStates states;
  std::optional<recordings::RecordingMark> recording = {};  // where its run was, for resume()
  std::optional<Together> together = {};
};

/// A checkpoint read back: the contents of its files have the sizes and sums of the manifest.
struct StoredCheckpoint {
  struct Part {
    std::size_t file;
    Dims begin;
  };
  struct Whole {
    std::string name;
    Type type;
    std::vector<Part> parts;
  };
  std::filesystem::path folder;
  std::vector<std::string> files;
  std::vector<Whole> tensors;
  struct OfProcess {
    host::SavedStates states;
    std::optional<recordings::RecordingMark> recording = {};
  };
  std::vector<OfProcess> processes;  // by rank
};

/// Returns the numbers of the folder's checkpoints, the newest first. None when there is no such
/// folder; throws Error(unavailable) when it cannot be read.
std::vector<std::uint64_t> checkpoint_numbers(const std::filesystem::path& folder);

std::filesystem::path checkpoint_path(const std::filesystem::path& folder, std::uint64_t number);

/// Throws Error with what is wrong with it.
StoredCheckpoint read_checkpoint(const std::filesystem::path& checkpoint);

/// Throws Error(unavailable); then there is no such checkpoint, or what is there of it will be
/// swept.
void write_checkpoint(const std::filesystem::path& checkpoint, const Snapshot& snapshot);

/// Writes the files of a snapshot, with `mark` in their names; what a manifest is to say of it.
Json write_files(const std::filesystem::path& folder, const Snapshot& snapshot,
                 const std::string& mark);
/// Returns the manifest of what processes wrote, by rank. Throws Error(data_loss) when they do not
/// agree.
Json joined(std::span<const Json> pieces);
/// Writes a manifest, or a part of one, with its checksum. The folder is for the caller to sync.
void write_manifest(const std::filesystem::path& file, const Json& json);
/// Throws Error: it cannot be read, is none, or its checksum does not fit.
Json read_manifest(const std::filesystem::path& file);
/// Syncs the folder: whatever was renamed or removed there is on disk. Throws Error(unavailable).
void sync_folder(const std::filesystem::path& folder);

/// Removes its manifest first, so that it is whole as long as it counts.
void remove_checkpoint(const std::filesystem::path& checkpoint);

/// Removes what killed processes left of checkpoints that never counted. For who has the lock.
void sweep(const std::filesystem::path& folder);

/// Throws Error about a folder or file of checkpoints.
[[noreturn]] void refuse_at(ErrorCode code, const std::filesystem::path& where,
                            std::string_view why);

/// Makes it with those above it, where they are not there. Throws Error(unavailable).
void make_folder(const std::filesystem::path& folder);

/// A folder that this process alone writes to, while this lives. Made when it is not there.
class FolderLock {
 public:
  /// Throws Error: failed_precondition when another process has it, unavailable.
  explicit FolderLock(const std::filesystem::path& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  /// Returns whether the folder is the one that was locked, and not one that was made after it.
  bool stands(const std::filesystem::path& folder) const;

 private:
  int handle_;
  std::optional<host::ClosedInChild> locked_;
};

}  // namespace postern::internal::checkpoints
