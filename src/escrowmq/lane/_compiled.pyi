from escrowmq.lane.native import (
    AlikeHalves,
    AreWhole,
    Chain,
    CopyCells,
    CopyNamed,
    CopyNumbers,
    CopyRuns,
    FindBlocks,
    FindEnds,
    FindEntries,
    FindRecords,
    FindRepeated,
    FindRuns,
    FindSigned,
    FindStarts,
    IndexKeyOf,
    LayOutEnds,
    LayOutSends,
    Lead,
    ReplyWithRuns,
)

CONTRACT: int
lay_out_sends: LayOutSends
find_ends: FindEnds
lay_out_ends: LayOutEnds
index_key: IndexKeyOf
find_blocks: FindBlocks
chain: Chain
lead: Lead
find_signed: FindSigned
alike_halves: AlikeHalves
find_starts: FindStarts
find_runs: FindRuns
copy_runs: CopyRuns
reply_with_runs: ReplyWithRuns
are_whole: AreWhole
find_repeated: FindRepeated
find_records: FindRecords
copy_cells: CopyCells
copy_numbers: CopyNumbers
find_entries: FindEntries
copy_named: CopyNamed
