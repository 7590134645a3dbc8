// PNG: a signature, then chunks, each with its length, type, data and CRC-32. The listener that
// writes such files.
#include "png.h"

#include <fmt/format.h>
#include <postern/error.h>
#include <postern/metrics.h>
#include <zlib.h>

#include <algorithm>
#include <cmath>

#include "metric.h"
#include "spi.h"
#include "summary.h"

namespace postern::internal::host {

namespace {

void append_big_endian(std::string& to, std::uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) to += static_cast<char>(value >> shift);
}

void append_chunk(std::string& to, std::string_view type, std::string_view data) {
  append_big_endian(to, static_cast<std::uint32_t>(data.size()));
  uLong crc = crc32_z(0, reinterpret_cast<const Bytef*>(type.data()), type.size());
  crc = crc32_z(crc, reinterpret_cast<const Bytef*>(data.data()), data.size());
  to += type;
  to += data;
  append_big_endian(to, static_cast<std::uint32_t>(crc));
}

}  // namespace

std::string png(std::int64_t width, std::int64_t height, int channels, std::string_view samples) {
  constexpr char color_types[] = {0, 0, 0, 2, 6};  // by channels: grey, RGB, RGBA
  std::string header;
  append_big_endian(header, static_cast<std::uint32_t>(width));
  append_big_endian(header, static_cast<std::uint32_t>(height));
  header += char{8};  // bits a sample
  header += color_types[channels];
  header.append(3, '\0');  // zlib, the only filter method, not interlaced

  const auto row = static_cast<std::size_t>(width) * static_cast<std::size_t>(channels);
  std::string rows;  // each behind its filter: none
  for (std::size_t at = 0; at < samples.size(); at += row) {
    rows += '\0';
    rows += samples.substr(at, row);
  }
  uLongf size = compressBound(rows.size());
  std::string data(size, '\0');
  if (compress(reinterpret_cast<Bytef*>(data.data()), &size,
               reinterpret_cast<const Bytef*>(rows.data()), rows.size()) != Z_OK)
    throw Error(ErrorCode::resource_exhausted, "png: no memory to compress an image");
  data.resize(size);

  std::string out = "\x89PNG\r\n\x1a\n";
  append_chunk(out, "IHDR", header);
  append_chunk(out, "IDAT", data);
  append_chunk(out, "IEND", "");
  return out;
}

std::vector<std::string> Images::files() const {
  std::vector<std::string> out;
  const auto size = samples.size() / static_cast<std::size_t>(count);
  for (std::size_t at = 0; at < samples.size(); at += size)
    out.push_back(
        png(width, height, static_cast<int>(channels), std::string_view(samples).substr(at, size)));
  return out;
}

Images images_of(std::string_view who, std::string_view what, const AnyView& view) {
  constexpr std::int64_t most_pixels = std::int64_t{1} << 28;  // of one image
  const std::span<const std::int64_t> dims = view.dims();
  Images out;
  if (dims.size() >= 2 && dims.size() <= 4) {
    const std::size_t at = dims.size() == 4;
    out = {at == 1 ? dims[0] : 1, dims[at], dims[at + 1], dims.size() > 2 ? dims[at + 2] : 1};
  }
  const bool samples = view.dtype() == DType::u8 || is_float(view.dtype());
  const bool channels = out.channels == 1 || out.channels == 3 || out.channels == 4;
  check(out.width > 0 && samples && channels && view.size() > 0 &&
            out.height <= most_pixels / out.width,
        "{}: an image is u8 or a float, [height, width], [height, width, channels] or [n, height, "
        "width, channels] with 1, 3 or 4 channels and at most {} pixels; '{}' is {}",
        who, most_pixels, what, to_string(view.type()));
  out.samples.resize(static_cast<std::size_t>(view.size()));
  for (std::int64_t i = 0; i < view.size(); ++i) {
    double x = real_at(view.dtype(), view.data(), i);
    if (view.dtype() != DType::u8)
      x = std::round(std::clamp(std::isnan(x) ? 0 : x, 0.0, 1.0) * 255);
    out.samples[static_cast<std::size_t>(i)] = static_cast<char>(static_cast<unsigned char>(x));
  }
  return out;
}

}  // namespace postern::internal::host

namespace postern::listen {
using namespace internal;

struct PngState {
  std::string path;
  Mutex guard;
  host::MetricSteps steps;
  host::WriteFailures failures;

  PngState(std::string where, OnError on_error) : path(std::move(where)), failures(on_error) {}

  void see(const TapInfo& info, std::span<const AnyView> leaves) {
    const auto [step, first] = steps.next(info, leaves);
    std::string name = fmt::format(fmt::runtime(path), fmt::arg("step", step));
    name.resize(name.size() - std::string_view(".png").size());
    std::size_t count = 0;
    for (std::size_t i = first; i < leaves.size(); ++i)
      for (const std::string& file :
           host::images_of("png", host::metric_name(info, i), leaves[i]).files()) {
        std::string number;
        if (count > 0) number = fmt::format("-{}", count);
        host::write_text_file("png", name + number + ".png", file);
        ++count;
      }
  }
};

Png::Png(const std::string& file, const PngOptions& options, Place place) {
  PlaceScope at(place);
  constexpr std::string_view end = ".png";
  check(file.size() > end.size() && file.ends_with(end),
        "png: the file must be named .png, got '{}'", file);
  host::check_step_format("png", file);
  state_ = std::make_shared<PngState>(file, options.on_error);
}

void Png::operator()(const TapInfo& info, std::span<const AnyView> leaves) const {
  std::scoped_lock lock(state_->guard);
  state_->failures.run("png", [&] { state_->see(info, leaves); });
}

}  // namespace postern::listen
