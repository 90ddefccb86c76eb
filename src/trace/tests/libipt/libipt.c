// What libipt, Intel's decoder, reads in a trace: `libipt TRACE` lists the packets behind each PSB, up to the next one or to
// what is not a packet; `libipt TRACE CODE ADDRESS ...` the addresses of the instructions that were executed, with the code in
// these files, and `-` wherever something is wrong; with ERRATA set, on a processor with all errata. `libipt` lists the
// families and models with some errata.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <intel-pt.h>

static uint8_t *bytes;
static size_t size;
static uint64_t last;

static void line(uint64_t offset, const char *kind, uint64_t a, uint64_t b) {
  printf("%" PRIx64 " %s %" PRIx64 " %" PRIx64 "\n", offset, kind, a, b);
}

static void address(uint64_t offset, const char *kind, const struct pt_packet_ip *ip) {
  switch (ip->ipc) {
  case pt_ipc_update_16: last = (last & ~0xffffull) | (ip->ip & 0xffff); break;
  case pt_ipc_update_32: last = (last & ~0xffffffffull) | (ip->ip & 0xffffffff); break;
  case pt_ipc_update_48: last = (last & ~0xffffffffffffull) | (ip->ip & 0xffffffffffff); break;
  case pt_ipc_sext_48: last = (uint64_t)((int64_t)(ip->ip << 16) >> 16); break;
  case pt_ipc_full: last = ip->ip; break;
  default: line(offset, kind, 0, 0); return;
  }
  line(offset, kind, last, 1);
}

static void packet(uint64_t at, const struct pt_packet *p) {
  switch (p->type) {
  case ppt_tnt_8: case ppt_tnt_64: line(at, "tnt", p->payload.tnt.payload, p->payload.tnt.bit_size); break;
  case ppt_tip: address(at, "tip", &p->payload.ip); break;
  case ppt_tip_pge: address(at, "pge", &p->payload.ip); break;
  case ppt_tip_pgd: address(at, "pgd", &p->payload.ip); break;
  case ppt_fup: address(at, "fup", &p->payload.ip); break;
  case ppt_psb: last = 0; line(at, "psb", 0, 0); break;
  case ppt_psbend: line(at, "psbend", 0, 0); break;
  case ppt_ovf: last = 0; line(at, "ovf", 0, 0); break;
  case ppt_tsc: line(at, "tsc", p->payload.tsc.tsc, 0); break;
  case ppt_tma: line(at, "tma", p->payload.tma.ctc, p->payload.tma.fc); break;
  case ppt_mtc: line(at, "mtc", p->payload.mtc.ctc, 0); break;
  case ppt_cyc: line(at, "cyc", p->payload.cyc.value, 0); break;
  case ppt_cbr: line(at, "cbr", p->payload.cbr.ratio, 0); break;
  case ppt_pip: line(at, "pip", p->payload.pip.cr3, p->payload.pip.nr); break;
  case ppt_ptw: line(at, "ptw", p->payload.ptw.payload, p->payload.ptw.ip); break;
  case ppt_mwait: line(at, "mwait", (uint64_t)p->payload.mwait.ext << 32 | p->payload.mwait.hints, 0); break;
  case ppt_exstop: line(at, "exstop", p->payload.exstop.ip, 0); break;
  case ppt_stop: line(at, "stop", 0, 0); break;
  case ppt_pwre: case ppt_pwrx: line(at, "power", 0, 0); break;
  case ppt_mode:
    if (p->payload.mode.leaf == pt_mol_exec) {
      enum pt_exec_mode mode = pt_get_exec_mode(&p->payload.mode.bits.exec);
      // The reserved one is taken for that of 64 bits.
      line(at, "exec", mode == ptem_unknown ? ptem_64bit : mode, 0);
    } else line(at, "tsx", p->payload.mode.bits.tsx.intx, p->payload.mode.bits.tsx.abrt);
    break;
  default: line(at, "other", 0, 0);
  }
}

static void packets(const struct pt_config *config) {
  static const uint8_t psb[] = {2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82};
  struct pt_packet_decoder *decoder = pt_pkt_alloc_decoder(config);
  for (size_t at = 0; at + sizeof psb <= size; at++) {
    if (memcmp(bytes + at, psb, sizeof psb)) continue;
    pt_pkt_sync_set(decoder, at);
    for (int first = 1;; first = 0) {
      struct pt_packet p;
      uint64_t offset;
      pt_pkt_get_offset(decoder, &offset);
      if (offset >= size) break;
      if (pt_pkt_next(decoder, &p, sizeof p) < 0) { line(offset, "bad", 0, 0); break; }
      if (p.type == ppt_psb && !first) break;
      packet(offset, &p);
    }
  }
  pt_pkt_free_decoder(decoder);
}

static void instructions(const struct pt_config *config, char **code) {
  struct pt_insn_decoder *decoder = pt_insn_alloc_decoder(config);
  struct pt_image *image = pt_image_alloc(NULL);
  for (; code[0] && code[1]; code += 2)
    pt_image_add_file(image, code[0], 0, UINT64_MAX >> 1, NULL, strtoull(code[1], NULL, 16));
  pt_insn_set_image(decoder, image);
  int status;
  while ((status = pt_insn_sync_forward(decoder)) >= 0) {
    for (;;) {
      while (status >= 0 && (status & pts_event_pending)) {
        struct pt_event event;
        status = pt_insn_event(decoder, &event, sizeof event);
        if (status >= 0 && event.type == ptev_overflow) puts("-");
      }
      if (status < 0) { if (status != -pte_eos) puts("-"); break; }
      struct pt_insn insn;
      status = pt_insn_next(decoder, &insn, sizeof insn);
      if (insn.iclass != ptic_error) printf("%" PRIx64 "\n", insn.ip);
      if (status < 0) { if (status != -pte_eos) puts("-"); break; }
    }
  }
  pt_insn_free_decoder(decoder);
}

static void errata(void) {
  for (int family = 0; family < 0x20; family++)
    for (int model = 0; model < 0x100; model++) {
      struct pt_errata found;
      struct pt_cpu cpu = {pcv_intel, family, model, 0};
      if (pt_cpu_errata(&found, &cpu) < 0) continue;
      printf("%d %d %d %d %d %d\n", family, model, found.bdm64, found.skd007, found.skd022, found.skz84);
    }
}

int main(int count, char **arguments) {
  if (count == 1) return errata(), 0;
  FILE *file = count > 1 ? fopen(arguments[1], "rb") : NULL;
  if (!file) return 2;
  fseek(file, 0, SEEK_END);
  size = ftell(file);
  rewind(file);
  bytes = malloc(size);
  size = fread(bytes, 1, size, file);
  struct pt_config config;
  pt_config_init(&config);
  if (getenv("ERRATA")) memset(&config.errata, 0xff, sizeof config.errata);
  config.begin = bytes;
  config.end = bytes + size;
  if (count > 2) instructions(&config, arguments + 2);
  else packets(&config);
  return 0;
}
