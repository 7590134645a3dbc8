// Checkpoints on disk: writing, reading and checking them.
#include "folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <new>
#include <system_error>
#include <thread>

#include "together.h"

namespace postern::internal::checkpoints {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view folder_prefix = "checkpoint-", manifest_line = "postern checkpoint 1\n";
constexpr const char* manifest = "manifest";
constexpr std::size_t written_at_once = 8 << 20;  // bytes
constexpr std::size_t large = 1 << 20;            // a part that is worth whole blocks

uLong sum(uLong before, std::string_view bytes) {
  return crc32_z(before, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
}
std::string crc_text(std::string_view bytes) { return fmt::format("{:08x}", sum(0, bytes)); }

/// The sum of two pieces, made by another thread if there is one. Not std::async, which would bring
/// a thread variable of another library (scripts/symbols).
class SumBeside {
 public:
  SumBeside(std::string_view head, std::string_view bytes) {
    const auto make = [this, head, bytes] { sum_ = sum(sum(0, head), bytes); };
    try {
      thread_ = std::jthread(make);
    } catch (const std::system_error&) {
      make();
    }
  }
  uLong get() {
    if (thread_.joinable()) thread_.join();
    return sum_;
  }

 private:
  uLong sum_ = 0;
  std::jthread thread_;  // joins when it goes
};

/// Writes a file, while another thread sums it up if there is one; what the manifest says of it.
Json write_file(const fs::path& folder, const std::string& name, std::string_view head,
                std::string_view bytes) {
  SumBeside crc(head, bytes);
  host::NewFile out("checkpoint", (folder / name).string());
  out.write(head);
  for (std::string_view rest = bytes; !rest.empty();) {
    const std::string_view next = rest.substr(0, written_at_once);
    out.write_past_cache(next);
    out.begin_sync();  // what went into the cache all the same
    rest.remove_prefix(next.size());
  }
  out.finish();
  return {{"name", name},
          {"bytes", head.size() + bytes.size()},
          {"crc32", fmt::format("{:08x}", crc.get())}};
}

/// The file that an entry of the manifest is about, if it is what the entry says.
std::string checked_file(const fs::path& folder, const Json& entry) {
  const std::string name = entry.at("name").get<std::string>();
  if (name.empty() || name.find('/') != std::string::npos)
    refuse_at(ErrorCode::invalid_argument, folder, "its manifest names a file elsewhere");
  const auto size = file::exactly<std::uint64_t>(entry.at("bytes"));
  const auto check_size = [&](std::uintmax_t has) {
    if (has != size)
      refuse_at(ErrorCode::data_loss, folder / name,
                fmt::format("it has {} bytes, {} were written", has, size));
  };
  std::error_code failed;  // before it is read, which tells what is wrong with it
  const std::uintmax_t has = fs::file_size(folder / name, failed);
  if (!failed && fs::is_regular_file(folder / name, failed)) check_size(has);
  std::string bytes = host::read_file("checkpoint", (folder / name).string());
  check_size(bytes.size());
  if (crc_text(bytes) != entry.at("crc32").get<std::string>())
    refuse_at(ErrorCode::data_loss, folder / name, "its checksum does not fit: it was changed");
  return bytes;
}

Json tensors_of(const Snapshot& snapshot) {
  Json tensors = Json::array();
  for (std::size_t i = 0; i < snapshot.wholes.size(); ++i) {
    Json parts = Json::array();
    for (std::size_t p = 0; p < snapshot.parts.size(); ++p)
      parts.push_back({{"file", p}, {"begin", snapshot.parts[p].begins[i]}});
    const auto& [name, type] = snapshot.wholes[i];
    tensors.push_back({{"name", name}, {"type", to_string(type)}, {"parts", parts}});
  }
  return tensors;
}

Json json_of_mark(const recordings::RecordingMark& mark) {
  const auto& [recording, run, sites] = mark;
  Json calls_of = Json::array();
  for (const auto& [site, device, element, calls] : sites)
    calls_of.push_back({site, device, element, calls});
  return {{"name", recording}, {"run", run}, {"sites", std::move(calls_of)}};
}

recordings::RecordingMark mark_from(const Json& json) {
  recordings::RecordingMark out{
      json.at("name").get<std::string>(), file::exactly<std::uint64_t>(json.at("run")), {}};
  for (const Json& s : json.at("sites"))
    out.sites.push_back({file::exactly<std::int64_t>(s.at(0)), file::exactly<int>(s.at(1)),
                         file::exactly<std::int64_t>(s.at(2)),
                         file::exactly<std::uint64_t>(s.at(3))});
  return out;
}

/// A number that is smaller than `limit`.
std::size_t index_from(const Json& json, std::size_t limit) {
  const auto out = file::exactly<std::size_t>(json);
  if (out >= limit) throw std::out_of_range("index");
  return out;
}

}  // namespace

void sync_folder(const fs::path& folder) {
  const int handle = host::open_stream(folder.string(), O_RDONLY | O_DIRECTORY);
  if (handle < 0) refuse_at(ErrorCode::unavailable, folder, std::strerror(errno));
  const int failed = ::fsync(handle) == 0 ? 0 : errno;
  ::close(handle);
  if (failed) refuse_at(ErrorCode::unavailable, folder, std::strerror(failed));
}

void write_manifest(const fs::path& file, const Json& json) {
  const std::string body = file::text_of(json, "checkpoint: a name");
  host::write_text_file("checkpoint", file.string(), sealed(manifest_line, body));
}

Json read_manifest(const fs::path& file) {
  const std::string text = host::read_file("checkpoint", file.string());
  if (!text.starts_with("postern checkpoint "))
    refuse_at(ErrorCode::data_loss, file, "it is no manifest");
  if (!text.starts_with(manifest_line))
    refuse_at(ErrorCode::unimplemented, file, "it is of another version of Postern");
  const std::optional<std::string_view> body = unsealed(text, manifest_line.size());
  if (!body)
    refuse_at(ErrorCode::data_loss, file, "its checksum does not fit: it was changed or cut short");
  return Json::parse(*body);
}

fs::path checkpoint_path(const fs::path& folder, std::uint64_t number) {
  return folder / fmt::format("{}{:012}", folder_prefix, number);
}

namespace {

/// Of all that is named like one, also without a manifest.
std::vector<std::uint64_t> all_numbers(const fs::path& folder) {
  std::vector<std::uint64_t> out;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (!name.starts_with(folder_prefix)) continue;
    std::uint64_t number = 0;
    const char *const begin = name.data() + folder_prefix.size(), *const last =
                                                                      name.data() + name.size();
    if (std::from_chars(begin, last, number).ptr == last && checkpoint_path("", number) == name)
      out.push_back(number);
  }
  if (error && error != std::errc::no_such_file_or_directory)
    refuse_at(ErrorCode::unavailable, folder, error.message());
  std::ranges::sort(out, std::greater());
  return out;
}

bool counts(const fs::path& checkpoint) { return host::is_there(checkpoint / manifest); }

}  // namespace

std::vector<std::uint64_t> checkpoint_numbers(const fs::path& folder) {
  for (std::vector<std::uint64_t> all = all_numbers(folder);;) {
    std::vector<std::uint64_t> out;
    // The oldest first: one that is gone by then has made room for a newer one, which is whole.
    for (auto n = all.rbegin(); n != all.rend(); ++n)
      if (counts(checkpoint_path(folder, *n))) out.insert(out.begin(), *n);
    if (!out.empty()) return out;
    std::vector<std::uint64_t> now = all_numbers(folder);
    if (now == all) return out;
    all = std::move(now);
  }
}

AlignedMemory aligned_memory(std::size_t size) {
  constexpr std::size_t block = host::NewFile::block;
  auto* const out = std::aligned_alloc(block, (size / block + 1) * block);
  if (!out) throw std::bad_alloc();
  return AlignedMemory(static_cast<std::byte*>(out));
}

Json write_files(const fs::path& folder, const Snapshot& snapshot, const std::string& mark) {
  Json files = Json::array(), states = Json::array();
  for (const CheckpointPart& part : snapshot.parts) {
    std::vector<StoredTensor> tensors = part.tensors;
    const std::string head =
        formats::safetensors_head(tensors, part.size >= large ? host::NewFile::block : 8);
    files.push_back(write_file(folder, fmt::format("part-{}{}.safetensors", mark, files.size()),
                               head, {reinterpret_cast<const char*>(part.bytes.get()), part.size}));
  }
  for (const auto& [name, bytes] : snapshot.states) {
    states.push_back({{"name", name}, {"file", files.size()}});
    files.push_back(
        write_file(folder, fmt::format("state-{}{}", mark, states.size() - 1), "", bytes));
  }
  Json recording;  // null: none
  if (snapshot.recording) recording = json_of_mark(*snapshot.recording);
  return {{"tap", snapshot.tap},
          {"place", snapshot.place},
          {"tensors", tensors_of(snapshot)},
          {"files", std::move(files)},
          {"processes", {{{"states", std::move(states)}, {"recording", std::move(recording)}}}}};
}

Json joined(std::span<const Json> pieces) {
  Json out = pieces[0];
  for (std::size_t rank = 1; rank < pieces.size(); ++rank) {
    const Json& piece = pieces[rank];
    const std::size_t before = out.at("files").size();
    const auto moved = [&](Json entry) {
      entry.at("file") = file::exactly<std::size_t>(entry.at("file")) + before;
      return entry;
    };
    const auto same = [&](const char* key) { return piece.at(key) == out.at(key); };
    bool agree =
        same("tap") && same("place") && piece.at("tensors").size() == out["tensors"].size();
    for (std::size_t i = 0; agree && i < out["tensors"].size(); ++i) {
      Json& into = out["tensors"][i];
      const Json& from = piece.at("tensors")[i];
      agree = from.at("name") == into.at("name") && from.at("type") == into.at("type");
      for (const Json& part : from.at("parts")) into["parts"].push_back(moved(part));
    }
    if (!agree)
      throw Error(ErrorCode::data_loss,
                  fmt::format("process {} showed something else than process 0", rank));
    for (Json process : piece.at("processes")) {
      for (Json& state : process.at("states")) state = moved(state);
      out["processes"].push_back(std::move(process));
    }
    for (const Json& file : piece.at("files")) out["files"].push_back(file);
  }
  return out;
}

void write_checkpoint(const fs::path& checkpoint, const Snapshot& snapshot) {
  std::error_code error;
  fs::remove_all(checkpoint, error);  // what a failure left
  if (!fs::create_directory(checkpoint, error))
    refuse_at(ErrorCode::unavailable, checkpoint, error.message());
  const Json json = write_files(checkpoint, snapshot, "");
  sync_folder(checkpoint);
  sync_folder(checkpoint.parent_path());
  write_manifest(checkpoint / manifest, json);
  sync_folder(checkpoint);
}

StoredCheckpoint read_checkpoint(const fs::path& checkpoint) try {
  const Json json = read_manifest(checkpoint / manifest);
  StoredCheckpoint out;
  out.folder = checkpoint;
  for (const Json& entry : json.at("files")) out.files.push_back(checked_file(checkpoint, entry));
  for (const Json& entry : json.at("tensors")) {
    StoredCheckpoint::Whole whole{entry.at("name").get<std::string>(),
                                  file::parse_type(entry.at("type").get<std::string>()),
                                  {}};
    for (const Json& part : entry.at("parts"))
      whole.parts.push_back(
          {index_from(part.at("file"), out.files.size()), file::exactly<Dims>(part.at("begin"))});
    out.tensors.push_back(std::move(whole));
  }
  for (const Json& process : json.at("processes")) {
    StoredCheckpoint::OfProcess& of = out.processes.emplace_back();
    for (const Json& entry : process.at("states"))
      of.states.emplace_back(entry.at("name").get<std::string>(),
                             out.files[index_from(entry.at("file"), out.files.size())]);
    if (const Json& mark = process.at("recording"); !mark.is_null()) of.recording = mark_from(mark);
  }
  if (out.processes.empty())
    refuse_at(ErrorCode::invalid_argument, checkpoint, "it is of no process");
  return out;
} catch (const Json::exception& e) {
  refuse_at(ErrorCode::invalid_argument, checkpoint, one_line(e.what()));
} catch (const TypeError& e) {
  refuse_at(ErrorCode::invalid_argument, checkpoint, e.what());
} catch (const std::out_of_range&) {
  refuse_at(ErrorCode::invalid_argument, checkpoint, "its manifest names a file that it lacks");
}

void remove_checkpoint(const fs::path& checkpoint) {
  std::error_code error;
  fs::remove(checkpoint / manifest, error);
  if (!error) fs::remove_all(checkpoint, error);
  if (error) refuse_at(ErrorCode::unavailable, checkpoint, error.message());
}

void sweep(const fs::path& folder) {
  sweep_gatherings(folder);
  for (const std::uint64_t number : all_numbers(folder))
    if (const fs::path checkpoint = checkpoint_path(folder, number); !counts(checkpoint))
      remove_checkpoint(checkpoint);
}

void refuse_at(ErrorCode code, const fs::path& where, std::string_view why) {
  throw Error(code, fmt::format("checkpoint: {}: {}", one_line(where.string()), why));
}

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) refuse_at(ErrorCode::unavailable, folder, error.message());
}

FolderLock::FolderLock(const fs::path& folder) {
  make_folder(folder);
  const fs::path file = folder / "lock";
  handle_ = host::open_file("checkpoint", file.string(), O_RDWR | O_CREAT);
  if (handle_ < 0) refuse_at(ErrorCode::unavailable, file, std::strerror(errno));
  locked_.emplace(handle_);  // before there is a lock that a child could have
  // Of this open file, and not of the process, which would lose it with any other handle that it
  // closes. The holder's number is what the file says, as far as the disk has room for it.
  if (::flock(handle_, LOCK_EX | LOCK_NB) == 0) {
    if (::ftruncate(handle_, 0) == 0) static_cast<void>(::dprintf(handle_, "%d", ::getpid()));
    return;
  }
  const int failed = errno;
  char holder[16] = "";
  static_cast<void>(::pread(handle_, holder, sizeof holder - 1, 0));
  locked_->close();
  if (failed != EWOULDBLOCK) refuse_at(ErrorCode::unavailable, file, std::strerror(failed));
  refuse_at(
      ErrorCode::failed_precondition, folder,
      fmt::format("another process ({}) writes checkpoints there; give each a folder of its own",
                  std::atoi(holder)));
}

bool FolderLock::stands(const fs::path& folder) const {
  struct stat locked = {}, there = {};
  return ::fstat(handle_, &locked) == 0 && ::stat((folder / "lock").c_str(), &there) == 0 &&
         locked.st_dev == there.st_dev && locked.st_ino == there.st_ino;
}

FolderLock::~FolderLock() { locked_->close(); }

}  // namespace postern::internal::checkpoints
