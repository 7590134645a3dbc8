// ZIP archives: headers, the directory, and inflating.
#include "zip.h"

#include <fmt/format.h>
#include <postern/error.h>
#include <zlib.h>

#include <algorithm>
#include <cstdint>
#include <new>

#include "spi.h"

namespace postern::internal::formats {

namespace {

constexpr std::uint64_t in_zip64 = 0xFFFFFFFF;  // in place of a number that needs 64 bits
constexpr std::uint64_t files_in_zip64 = 0xFFFF;
/// Returns what a field of 32 bits has for a number.
std::uint64_t in_short(std::uint64_t number, bool is_large) { return is_large ? in_zip64 : number; }
constexpr std::uint64_t version = 20, version_of_zip64 = 45;

/// Little-endian numbers of an archive that is written.
class ZipNumbers {
 public:
  ZipNumbers& u16(std::uint64_t v) { return put(v, 2); }
  ZipNumbers& u32(std::uint64_t v) { return put(v, 4); }
  ZipNumbers& u64(std::uint64_t v) { return put(v, 8); }
  ZipNumbers& text(const std::string& t) {
    bytes_ += t;
    return *this;
  }
  const std::string& str() const { return bytes_; }

 private:
  ZipNumbers& put(std::uint64_t v, int n) {
    for (int i = 0; i < n; ++i) bytes_ += static_cast<char>(v >> (8 * i));
    return *this;
  }
  std::string bytes_;
};

/// What the two headers of a file have in common: version, flags (names are UTF-8), method
/// (stored), time, date (1980-01-01), checksum, sizes, lengths of the name and of ZIP64's field.
std::string common_header(const ZipFile& file, std::uint64_t crc, std::uint64_t size, bool large,
                          const std::string& extra) {
  const std::uint64_t shown = in_short(size, large);
  ZipNumbers header;
  header.u16(extra.empty() ? version : version_of_zip64).u16(1 << 11).u16(0).u16(0).u16(33);
  header.u32(crc).u32(shown).u32(shown).u16(file.name.size()).u16(extra.size());
  return header.str();
}

/// Returns ZIP64's field with these numbers; empty for none.
std::string large_numbers(const std::vector<std::uint64_t>& numbers) {
  if (numbers.empty()) return {};
  ZipNumbers field;
  field.u16(1).u16(8 * numbers.size());
  for (const std::uint64_t n : numbers) field.u64(n);
  return field.str();
}

}  // namespace

// A ZIP archive of files that are stored as they are, not compressed. Writes for each a local
// header, its head and its data; then the central directory, which repeats the headers with where
// each file begins; then the record that says where the directory is. Numbers have 32 bits there,
// that of the files 16; those that do not fit stand with 64 in fields and a record of ZIP64
// (APPNOTE 6.3.10, 4.3.14 and 4.5.3).
void write_zip(host::NewFile& to, const std::vector<ZipFile>& files, const ZipShort& fits) {
  std::uint64_t at = 0;
  auto write = [&](const void* data, std::size_t size) {
    to.write({static_cast<const char*>(data), size});
    at += size;
  };
  std::string directory;
  for (const ZipFile& f : files) {
    const std::uint64_t size = f.head.size() + f.data.size();
    uLong crc = crc32_z(0, reinterpret_cast<const Bytef*>(f.head.data()), f.head.size());
    if (!f.data.empty())  // zlib begins anew where it is given no memory
      crc = crc32_z(crc, reinterpret_cast<const Bytef*>(f.data.data()), f.data.size());
    const bool large = size > fits.bytes, far = at > fits.bytes;
    std::vector<std::uint64_t> numbers;
    if (large) numbers = {size, size};
    const std::string sizes = large_numbers(numbers);
    if (far) numbers.push_back(at);
    const std::string sizes_and_place = large_numbers(numbers);
    directory += ZipNumbers()
                     .u32(0x02014b50)
                     .u16(version)
                     .text(common_header(f, crc, size, large, sizes_and_place))
                     .u16(0)  // comment, disk, attributes
                     .u16(0)
                     .u16(0)
                     .u32(0)
                     .u32(in_short(at, far))
                     .text(f.name)
                     .text(sizes_and_place)
                     .str();
    const std::string local = ZipNumbers()
                                  .u32(0x04034b50)
                                  .text(common_header(f, crc, size, large, sizes))
                                  .text(f.name)
                                  .text(sizes)
                                  .str();
    write(local.data(), local.size());
    write(f.head.data(), f.head.size());
    write(f.data.data(), f.data.size());
  }
  const std::uint64_t start = at;
  write(directory.data(), directory.size());
  ZipNumbers end;
  const bool many = files.size() > fits.files;
  const bool far = start > fits.bytes || directory.size() > fits.bytes;
  if (many || far) {
    const std::uint64_t record = at, rest_of_record = 44;
    end.u32(0x06064b50).u64(rest_of_record).u16(version_of_zip64).u16(version_of_zip64);
    end.u32(0).u32(0).u64(files.size()).u64(files.size()).u64(directory.size()).u64(start);
    end.u32(0x07064b50).u32(0).u64(record).u32(1);
  }
  const std::uint64_t count = many ? files_in_zip64 : files.size();
  end.u32(0x06054b50).u16(0).u16(0).u16(count).u16(count);
  end.u32(in_short(directory.size(), far)).u32(in_short(start, far)).u16(0);
  write(end.str().data(), end.str().size());
}

namespace {

/// How much longer than its input deflate can make its output, and a little more.
constexpr std::uint64_t most_growth = 1032, little = 1 << 12;

[[noreturn]] void refuse_archive(const std::string& why, ErrorCode code = ErrorCode::data_loss) {
  throw Error(code, why);
}

/// Little-endian numbers of an archive that is read.
class ZipBytes {
 public:
  explicit ZipBytes(std::string_view data) : data_(data) {}
  std::string_view part(std::uint64_t from, std::uint64_t size) const {
    if (from > data_.size() || size > data_.size() - from)
      refuse_archive("the archive is cut short");
    return data_.substr(from, size);
  }
  std::uint64_t number(std::uint64_t from, int bytes) const {
    std::uint64_t n = 0;
    const std::string_view digits = part(from, static_cast<std::uint64_t>(bytes));
    for (std::size_t i = digits.size(); i-- > 0;)
      n = n << 8 | static_cast<unsigned char>(digits[i]);
    return n;
  }
  std::uint64_t size() const { return data_.size(); }

 private:
  std::string_view data_;
};

struct ZipDirectory {
  std::uint64_t begin, files;
};

/// From the record at the archive's end, which only a comment of at most 64 KiB follows.
ZipDirectory directory_of(const ZipBytes& archive) {
  constexpr std::uint64_t end_size = 22, longest_comment = 0xFFFF, locator_size = 20;
  for (std::uint64_t back = end_size; back <= std::min(archive.size(), end_size + longest_comment);
       ++back) {
    const std::uint64_t at = archive.size() - back;
    if (archive.number(at, 4) != 0x06054b50) continue;
    ZipDirectory found{archive.number(at + 16, 4), archive.number(at + 10, 2)};
    const bool large = found.begin == in_zip64 || found.files == files_in_zip64;
    if (large && at >= locator_size && archive.number(at - locator_size, 4) == 0x07064b50) {
      const std::uint64_t record = archive.number(at - locator_size + 8, 8);
      if (archive.number(record, 4) != 0x06064b50) refuse_archive("the archive's end is damaged");
      found = {archive.number(record + 48, 8), archive.number(record + 32, 8)};
    }
    return found;
  }
  refuse_archive("this is no ZIP archive", ErrorCode::invalid_argument);
}

struct ZipEntry {
  std::string name;
  std::uint64_t flags, method, checksum, packed, size, begin;
  [[noreturn]] void refuse(const std::string& why, ErrorCode code = ErrorCode::data_loss) const {
    refuse_archive(one_line(name) + ": " + why, code);
  }
};

/// Sizes that do not fit into 32 bits stand in an extra field, in this order.
void read_large(const ZipBytes& extra, ZipEntry& entry) {
  for (std::uint64_t at = 0; at + 4 <= extra.size(); at += 4 + extra.number(at + 2, 2)) {
    if (extra.number(at, 2) != 1) continue;
    std::uint64_t next = at + 4;
    for (std::uint64_t* const field : {&entry.size, &entry.packed, &entry.begin})
      if (*field == in_zip64) {
        *field = extra.number(next, 8);
        next += 8;
      }
    return;
  }
}

/// The entry of the directory that begins at `at`, which is moved behind it.
ZipEntry entry_at(const ZipBytes& archive, std::uint64_t& at) {
  constexpr std::uint64_t fixed = 46;
  if (archive.number(at, 4) != 0x02014b50) refuse_archive("the archive's directory is damaged");
  const std::uint64_t name = archive.number(at + 28, 2), extra = archive.number(at + 30, 2);
  ZipEntry entry{.name = std::string(archive.part(at + fixed, name)),
                 .flags = archive.number(at + 8, 2),
                 .method = archive.number(at + 10, 2),
                 .checksum = archive.number(at + 16, 4),
                 .packed = archive.number(at + 20, 4),
                 .size = archive.number(at + 24, 4),
                 .begin = archive.number(at + 42, 4)};
  read_large(ZipBytes(archive.part(at + fixed + name, extra)), entry);
  at += fixed + name + extra + archive.number(at + 32, 2);
  return entry;
}

std::string inflated(const ZipEntry& entry, std::string_view packed) {
  if (entry.size > packed.size() * most_growth + little)
    entry.refuse(fmt::format("it can't hold {} bytes", entry.size));
  std::string out(entry.size, '\0');
  z_stream stream{};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) throw std::bad_alloc();
  constexpr std::uint64_t step = 1u << 30;  // zlib counts in 32 bits
  std::uint64_t read = 0, written = 0;
  int code = Z_OK;
  while (code == Z_OK) {
    const std::uint64_t in = std::min(step, packed.size() - read);
    const std::uint64_t room = std::min(step, out.size() - written);
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data() + read));
    stream.avail_in = static_cast<uInt>(in);
    stream.next_out = reinterpret_cast<Bytef*>(out.data() + written);
    stream.avail_out = static_cast<uInt>(room);
    code = inflate(&stream, Z_NO_FLUSH);
    read += in - stream.avail_in;
    written += room - stream.avail_out;
  }
  inflateEnd(&stream);
  if (code != Z_STREAM_END || written != out.size()) entry.refuse("its data is damaged");
  return out;
}

}  // namespace

void read_zip(std::string_view archive,
              const std::function<void(const std::string&, std::string_view)>& with) {
  constexpr std::uint64_t stored = 0, deflated = 8, fixed = 30;
  const ZipBytes bytes(archive);
  const ZipDirectory directory = directory_of(bytes);
  std::uint64_t at = directory.begin, used = 0;
  for (std::uint64_t i = 0; i < directory.files; ++i) {
    const ZipEntry entry = entry_at(bytes, at);
    if ((entry.flags & 1) != 0) entry.refuse("it is encrypted", ErrorCode::unimplemented);
    if (entry.method != stored && entry.method != deflated)
      entry.refuse(fmt::format("it is packed by method {}, which is not deflate", entry.method),
                   ErrorCode::unimplemented);
    if (bytes.number(entry.begin, 4) != 0x04034b50) entry.refuse("its header is damaged");
    const std::uint64_t data =
        entry.begin + fixed + bytes.number(entry.begin + 26, 2) + bytes.number(entry.begin + 28, 2);
    const std::string_view packed = bytes.part(data, entry.packed);
    used += entry.packed;
    if (used > bytes.size()) refuse_archive("the archive's files lie in each other");
    const std::string unpacked = entry.method == deflated ? inflated(entry, packed) : "";
    const std::string_view whole = entry.method == deflated ? unpacked : packed;
    const uLong sum = crc32_z(0, reinterpret_cast<const Bytef*>(whole.data()), whole.size());
    if (whole.size() != entry.size || sum != entry.checksum) entry.refuse("its data is damaged");
    with(entry.name, whole);
  }
}

}  // namespace postern::internal::formats
