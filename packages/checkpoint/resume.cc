// Finding the newest whole checkpoint, and giving back what it holds.
#include <postern/checkpoint.h>
#include <postern/cluster.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "folder.h"

namespace postern {
using namespace internal;

namespace fs = std::filesystem;
using checkpoints::StoredCheckpoint, checkpoints::StoredTensor;

/// With where each tensor's parts are in the files.
struct detail::FoundCheckpoint {
  StoredCheckpoint stored;
  std::vector<std::string> names;
  struct Part {
    const char* bytes;
    Type type;
    Dims begin;
  };
  std::vector<std::vector<Part>> parts;
};

namespace {

using Part = detail::FoundCheckpoint::Part;

[[noreturn]] void refuse_parts(const std::string& name) {
  throw Error(ErrorCode::data_loss,
              fmt::format("the parts of {} do not make it up", internal::quoted(name)));
}

/// Whether they have an element in common.
bool overlap(const Part& a, const Part& b) {
  for (std::size_t i = 0; i < a.begin.size(); ++i)
    if (a.begin[i] + a.type.dims[i] <= b.begin[i] || b.begin[i] + b.type.dims[i] <= a.begin[i])
      return false;
  return true;
}

/// Whether the parts lie in the whole and have each of its elements once.
bool make_up(const std::vector<Part>& parts, const Type& whole) {
  std::int64_t elements = 0;
  std::vector<const Part*> filled;
  for (const Part& part : parts) {
    const std::size_t rank = whole.dims.size();
    if (part.type.dtype != whole.dtype || part.begin.size() != rank ||
        part.type.dims.size() != rank)
      return false;
    for (std::size_t i = 0; i < rank; ++i)
      if (part.begin[i] < 0 || part.begin[i] > whole.dims[i] ||
          part.type.dims[i] > whole.dims[i] - part.begin[i])
        return false;
    if (part.type.size() == 0) continue;
    elements += part.type.size();
    if (elements > whole.size()) return false;
    for (const Part* other : filled)
      if (overlap(part, *other)) return false;
    filled.push_back(&part);
  }
  return !parts.empty() && elements == whole.size();
}

std::shared_ptr<const detail::FoundCheckpoint> found_in(StoredCheckpoint stored) {
  const auto out = std::make_shared<detail::FoundCheckpoint>();
  out->stored = std::move(stored);
  const StoredCheckpoint& s = out->stored;
  std::vector<std::vector<StoredTensor>> heads(s.files.size());
  for (const StoredCheckpoint::Whole& whole : s.tensors) {
    out->names.push_back(whole.name);
    std::vector<Part>& parts = out->parts.emplace_back();
    for (const StoredCheckpoint::Part& part : whole.parts) {
      if (part.file >= s.files.size()) refuse_parts(whole.name);
      auto& head = heads[part.file];
      if (head.empty()) head = formats::read_safetensors_head(s.files[part.file]);
      const auto tensor = std::ranges::find(head, whole.name, &StoredTensor::name);
      if (tensor == head.end()) refuse_parts(whole.name);
      parts.push_back({s.files[part.file].data() + tensor->offset, tensor->type, part.begin});
    }
    if (!make_up(parts, whole.type)) refuse_parts(whole.name);
  }
  return out;
}

/// Copies a part, row by row of its last axis, to its place in the whole.
void place(const Part& part, const Type& whole, std::byte* to) {
  const std::size_t rank = whole.dims.size();
  const std::size_t width = byte_width(whole.dtype);
  if (part.type.size() == 0) return;
  const auto row = rank > 0 ? static_cast<std::size_t>(part.type.dims.back()) * width : width;
  const std::int64_t rows =
      part.type.size() * static_cast<std::int64_t>(width) / static_cast<std::int64_t>(row);
  const char* from = part.bytes;
  for (std::int64_t r = 0; r < rows; ++r, from += row) {
    std::int64_t rest = r;
    std::int64_t at = rank > 0 ? part.begin[rank - 1] : 0;
    std::int64_t stride = rank > 0 ? whole.dims[rank - 1] : 1;
    for (std::size_t axis = rank; axis-- > 1;) {  // the axes before the last, from the inside
      at += (part.begin[axis - 1] + rest % part.type.dims[axis - 1]) * stride;
      rest /= part.type.dims[axis - 1];
      stride *= whole.dims[axis - 1];
    }
    std::memcpy(to + static_cast<std::size_t>(at) * width, from, row);
  }
}

Tensor assemble(const std::vector<Part>& parts, const Type& whole) {
  if (parts.size() == 1) return {whole, parts[0].bytes};
  std::vector<std::byte> bytes(std::max<std::size_t>(whole.byte_size(), 1));
  for (const Part& part : parts) place(part, whole, bytes.data());
  return {whole, bytes.data()};
}

/// What the checkpoint has for this process: its own, where as many take it up as kept it, else
/// what all had.
const StoredCheckpoint::OfProcess& of_this_process(const StoredCheckpoint& stored) {
  const auto& all = stored.processes;
  if (all.size() == 1) return all[0];
  const Cluster here = cluster();
  if (all.size() == static_cast<std::size_t>(here.size))
    return all[static_cast<std::size_t>(here.rank)];
  for (const StoredCheckpoint::OfProcess& other : all)
    if (other.states != all[0].states)
      throw Error(ErrorCode::failed_precondition,
                  fmt::format("resume: {} was kept by {} processes with registered states that "
                              "differ, so that {} cannot take them up",
                              one_line(stored.folder.string()), all.size(), here.size));
  return all[0];
}

std::string differences(const StoredCheckpoint& stored, const std::vector<std::string>& names,
                        const std::vector<Tensor>& like) {
  std::string out;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto found = std::ranges::find(stored.tensors, names[i], &StoredCheckpoint::Whole::name);
    if (found == stored.tensors.end()) {
      out += fmt::format("\n  leaf {} is not in the checkpoint", internal::quoted(names[i]));
      continue;
    }
    if (like.empty()) continue;
    const Type& type = like[i].type();
    if (type.dtype != found->type.dtype || type.dims != found->type.dims)
      out += fmt::format("\n  leaf {} is {}, in the checkpoint {}", internal::quoted(names[i]),
                         to_string(type), to_string(found->type));
  }
  const std::set<std::string> asked(names.begin(), names.end());
  for (const StoredCheckpoint::Whole& whole : stored.tensors)
    if (!asked.contains(whole.name))
      out += fmt::format("\n  leaf {} is in the checkpoint, and not asked for",
                         internal::quoted(whole.name));
  return out + host::differences_to_registered(of_this_process(stored).states);
}

}  // namespace

namespace detail {

std::shared_ptr<const FoundCheckpoint> newest_checkpoint(const fs::path& folder) {
  std::vector<std::uint64_t> numbers = checkpoints::checkpoint_numbers(folder);
  std::string damaged;
  for (std::size_t i = 0; i < numbers.size();) {
    try {
      auto found =
          found_in(checkpoints::read_checkpoint(checkpoints::checkpoint_path(folder, numbers[i])));
      if (!damaged.empty())
        log(LogLevel::warning, "resume: an older checkpoint is taken, {}, because of{}",
            one_line(found->stored.folder.string()), damaged);
      return found;
    } catch (const Error& e) {
      // Whoever writes there may have taken it away meanwhile, after a newer one.
      const std::vector<std::uint64_t> now = checkpoints::checkpoint_numbers(folder);
      const bool is_gone = std::ranges::find(now, numbers[i]) == now.end();
      if (is_gone && !now.empty() && now.front() > numbers.front()) {
        numbers = now;
        damaged.clear();
        i = 0;
        continue;
      }
      if (e.code() == ErrorCode::unavailable) throw;  // it may be whole
      damaged += fmt::format("\n  {}", e.what());
      ++i;
    }
  }
  if (damaged.empty()) return nullptr;
  throw Error(ErrorCode::data_loss, fmt::format("resume: no checkpoint of {} is whole:{}",
                                                one_line(folder.string()), damaged));
}

const std::vector<std::string>& names_in(const FoundCheckpoint& checkpoint) {
  return checkpoint.names;
}

std::vector<Tensor> restore(const FoundCheckpoint& checkpoint,
                            const std::vector<std::string>& names,
                            const std::vector<Tensor>& like) {
  const StoredCheckpoint& stored = checkpoint.stored;
  if (const std::string differ = differences(stored, names, like); !differ.empty())
    throw Error(ErrorCode::failed_precondition,
                fmt::format("resume: {} is of another program:{}", one_line(stored.folder.string()),
                            differ));
  std::vector<Tensor> out;
  for (const std::string& name : names) {
    const auto at = static_cast<std::size_t>(std::ranges::find(checkpoint.names, name) -
                                             checkpoint.names.begin());
    out.push_back(assemble(checkpoint.parts[at], stored.tensors[at].type));
  }
  host::load_states(of_this_process(stored).states);
  return out;
}

void resume_recording(const FoundCheckpoint* checkpoint, const Taping& recording) {
  std::optional<recordings::RecordingMark> mark;
  if (checkpoint) mark = of_this_process(checkpoint->stored).recording;
  recordings::resume_recording(recording, checkpoint != nullptr, mark);
}

bool ShapedByNames::has(const std::string& path) const {
  const std::string name = tensor_name(path);
  return std::ranges::any_of(names_, [&](const std::string& n) {
    return n.starts_with(name) &&
           (n.size() == name.size() || n[name.size()] == '.' || n[name.size()] == '[');
  });
}

std::vector<std::string> ShapedByNames::keys(const std::string& path, bool of_leaves) const {
  const std::string before = tensor_name(path + ".");
  std::set<std::string> found;
  for (const std::string& name : names_) {
    if (!name.starts_with(before)) continue;
    std::size_t end = name.size();
    if (!of_leaves) end = std::min(end, name.find_first_of(".[", before.size()));
    found.insert(name.substr(before.size(), end - before.size()));
  }
  return {found.begin(), found.end()};
}

}  // namespace detail
}  // namespace postern
